//! How RocksDB is set up, and the memory and threads that all stores of a process share.
//!
//! Not tuned for a big database: a process holds many small stores, so memory is bounded over all
//! of them and each is cheap to open, to flush and to throw away.
//!
//! The invariant: block cache and memtables stay near the [`ResourceLimits`] however many stores
//! are open. (Memtables are a soft limit: a store that passes it is flushed.)

use std::sync::Arc;

use rocksdb::{
    BlockBasedOptions, Cache, DBCompressionType, Env, LogLevel, Options, WriteBufferManager,
};

use super::expiry::{Expiry, ExpiryRule};
use crate::error::{Error, Moment};

const MIB: usize = 1024 * 1024;

/// Bounds on what all stores of a process use together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Cache of blocks, indexes and Bloom filters in bytes. A dedup key takes 1.25 bytes of filter:
    /// when the filters do not fit, each look-up reads the disk.
    pub block_cache_bytes: usize,
    /// Memtables in bytes. Beyond it the store that writes is flushed early. A store takes a
    /// quarter of a MiB as soon as it is written to: below half a MiB for each store of the
    /// process, every write is a flush.
    pub write_buffers_bytes: usize,
    /// Threads that flush.
    pub flush_threads: i32,
    /// Threads that compact.
    pub compaction_threads: i32,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self {
            block_cache_bytes: 128 * MIB,
            write_buffers_bytes: 128 * MIB,
            flush_threads: 1,
            compaction_threads: 1,
        }
    }
}

/// What all stores of a process share. Make one at start.
pub struct SharedResources {
    block_cache: Cache,
    write_buffers: WriteBufferManager,
    env: Env,
}

impl SharedResources {
    /// Shared resources within `limits`. The threads are the process's own: the last call counts.
    ///
    /// # Errors
    /// [`Error::Io`] when RocksDB finds no operating system to work on.
    pub fn new(limits: &ResourceLimits) -> Result<Arc<Self>, Error> {
        let mut env =
            Env::new().map_err(|error| Error::rocks("set up RocksDB", Moment::Running, error))?;
        env.set_high_priority_background_threads(limits.flush_threads);
        env.set_low_priority_background_threads(limits.compaction_threads);
        Ok(Arc::new(Self {
            block_cache: Cache::new_lru_cache(limits.block_cache_bytes),
            // Without stalls: a writer that waits for another store's flush would stop its task.
            write_buffers: WriteBufferManager::new_write_buffer_manager(
                limits.write_buffers_bytes,
                false,
            ),
            env,
        }))
    }

    /// Bytes in the block cache.
    #[must_use]
    pub fn block_cache_used_bytes(&self) -> usize {
        self.block_cache.get_usage()
    }

    /// Bytes in memtables.
    #[must_use]
    pub fn write_buffers_used_bytes(&self) -> usize {
        self.write_buffers.get_usage()
    }
}

/// How one store is opened.
#[derive(Clone)]
pub struct RocksOptions {
    /// What it shares with the other stores.
    pub shared: Arc<SharedResources>,
    /// Size of a memtable in bytes; a store has at most two.
    pub write_buffer_bytes: usize,
    /// Data files kept open, at most; -1 for all.
    pub open_files_max: i32,
    /// What expires, and when.
    pub expiry: Vec<ExpiryRule>,
    /// A file is compacted, and what has expired in it removed, when it is that old. Without it
    /// files with ascending keys, as time-ordered ids make them, would never be touched again.
    pub expiry_interval_s: u64,
}

impl RocksOptions {
    /// Defaults: memtables of 8 MiB, 128 open files, nothing expires, a day.
    #[must_use]
    pub fn new(shared: Arc<SharedResources>) -> Self {
        Self {
            shared,
            write_buffer_bytes: 8 * MIB,
            open_files_max: 128,
            expiry: Vec::new(),
            expiry_interval_s: 24 * 3600,
        }
    }

    /// The same with a further rule.
    #[must_use]
    pub fn with_expiry(mut self, rule: ExpiryRule) -> Self {
        self.expiry.push(rule);
        self
    }

    pub(super) fn for_open(&self, create: bool) -> Options {
        let mut options = Options::default();
        options.create_if_missing(create);
        options.set_env(&self.shared.env);
        options.set_block_based_table_factory(&self.tables());
        options.set_max_open_files(self.open_files_max);
        self.set_memtables(&mut options);
        self.set_compaction(&mut options);
        set_quiet(&mut options);
        options
    }

    fn tables(&self) -> BlockBasedOptions {
        let mut tables = BlockBasedOptions::default();
        tables.set_block_cache(&self.shared.block_cache);
        tables.set_block_size(8 * 1024);
        // Most look-ups are of the dedup store and find nothing.
        tables.set_bloom_filter(10.0, false);
        tables.set_whole_key_filtering(true);
        tables.set_optimize_filters_for_memory(true);
        // In the cache, so that its bound holds for them too; never pushed out by data blocks.
        tables.set_cache_index_and_filter_blocks(true);
        tables.set_cache_index_and_filter_blocks_with_high_priority(true);
        tables.set_pin_l0_filter_and_index_blocks_in_cache(true);
        tables
    }

    fn set_memtables(&self, options: &mut Options) {
        options.set_write_buffer_manager(&self.shared.write_buffers);
        options.set_write_buffer_size(self.write_buffer_bytes);
        options.set_max_write_buffer_number(2);
        // A store that is hardly written to must not take much: the shared bound counts what is
        // allocated, not what is used.
        options.set_arena_block_size((self.write_buffer_bytes / 64).clamp(16 * 1024, 128 * 1024));
        options.set_memtable_whole_key_filtering(true);
        options.set_memtable_prefix_bloom_ratio(0.01);
        // There is no log to append to; what is left of it must cost nothing.
        options.set_manual_wal_flush(true);
    }

    fn set_compaction(&self, options: &mut Options) {
        options.set_max_background_jobs(2);
        options.set_target_file_size_base(16 * MIB as u64);
        options.set_max_bytes_for_level_base(64 * MIB as u64);
        // Level 0 is rewritten soon; from the next level on, zstd at its fastest.
        options.set_compression_per_level(&[DBCompressionType::None, DBCompressionType::Zstd]);
        options.set_compression_options(-14, 1, 0, 0);
        options.set_bytes_per_sync(MIB as u64);
        // Entries of queues are deleted where scans start: rewrite files that are mostly tombstones
        // before scans get slow.
        options.add_compact_on_deletion_collector_factory(8192, 4096, 0.5);
        options.set_avoid_unnecessary_blocking_io(true);
        if !self.expiry.is_empty() {
            options.set_compaction_filter_factory(Expiry(self.expiry.clone()));
            options.set_periodic_compaction_seconds(self.expiry_interval_s);
        }
    }
}

/// Hundreds of stores must not write hundreds of chatty logs or run hundreds of statistics timers.
fn set_quiet(options: &mut Options) {
    options.set_log_level(LogLevel::Error);
    options.set_keep_log_file_num(1);
    options.set_max_log_file_size(MIB);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options.set_manifest_preallocation_size(64 * 1024);
    options.set_max_manifest_file_size(4 * MIB);
    options.set_skip_stats_update_on_db_open(true);
}
