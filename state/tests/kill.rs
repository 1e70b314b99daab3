//! Real deaths and a really full disk: a child process applies numbered batches to a store until it
//! is killed or refused; then the store must hold exactly the batches 1 to N of its checkpoint N.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests are tests")]

use std::io::{BufRead, BufReader, Lines, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use bytes::Bytes;
use streaming_hub_state::family::ready;
use streaming_hub_state::{
    Base, Checkpoint, Family, Identity, Key, KeyRange, Kind, Origin, ResourceLimits, RocksBase,
    RocksOptions, SharedResources, State,
};

const DIR: &str = "STREAMING_HUB_CRASH_TEST_DIR";
const CHILD: &str = "child_applies_numbered_batches";
const ENTRIES: u64 = 16;

fn open(dir: &Path) -> RocksBase {
    let shared = SharedResources::new(&ResourceLimits::default()).unwrap();
    let mut options = RocksOptions::new(shared);
    // Small, so that a round sees many flushes and compactions that nobody asked for.
    options.write_buffer_bytes = 128 * 1024;
    let identity = Identity {
        application_id: "crash".to_owned(),
        sub_topology: "delivery".to_owned(),
        partition: 0,
        partition_count: 1,
    };
    RocksBase::open(dir, &identity, options).unwrap()
}

fn checkpoint(batch: u64) -> Checkpoint {
    let number = i64::try_from(batch).unwrap();
    Checkpoint { positions: [(("log".to_owned(), 0), number)].into(), stamped_at_ms: number }
}

/// Keys of a batch are spread over the key space, so that files overlap.
fn key(batch: u64, entry: u64) -> Key {
    let subscription = [u8::try_from(entry * 37 % 256).unwrap(); 16];
    ready::key(&subscription, batch)
}

fn value(batch: u64) -> Bytes {
    ready::value(&u128::from(batch).to_be_bytes())
}

/// A batch puts its entries and deletes the first one of the batch before.
fn write(state: &mut State, batch: u64) {
    for entry in 0..ENTRIES {
        state.put(key(batch, entry), value(batch));
    }
    state.delete(key(batch - 1, 0));
}

fn say(line: &str) {
    // Not `println`, which the test harness keeps until the end.
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

#[test]
#[ignore = "the other tests run it, in a process of its own"]
fn child_applies_numbered_batches() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let base = open(Path::new(&dir));
    let last = base.checkpoint().unwrap().map_or(0, |last| last.stamped_at_ms);
    let mut state = State::new(Box::new(base));
    for batch in u64::try_from(last).unwrap() + 1.. {
        // Uncommitted, over a flush, and taken back: it must never be seen.
        write(&mut state, batch + 1_000_000);
        let now_ms = i64::try_from(batch).unwrap();
        let flushed = state
            .flush_if_older_than(now_ms, 50)
            .map(drop)
            .and_then(|()| if batch % 101 == 0 { state.flush().map(|()| true) } else { Ok(false) });
        state.rollback();
        write(&mut state, batch);
        let committed = flushed.and_then(|flushed| {
            if flushed {
                say(&format!("flushed {}", batch - 1));
            }
            state.commit(&checkpoint(batch))
        });
        match committed {
            Ok(()) => say(&format!("applied {batch}")),
            Err(error) => {
                say(&format!("error {:?} {error}", error.kind()));
                assert!(state.commit(&checkpoint(batch + 1)).is_err() || error.kind() == Kind::Io);
                return;
            }
        }
    }
}

fn spawn(command: &mut Command, dir: &Path) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = command
        .args(["--ignored", "--exact", CHILD, "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}

/// What the child said last of `what`, if it is about that.
fn said(line: &str, what: &str) -> Option<u64> {
    line.strip_prefix(what)?.trim().parse().ok()
}

/// Checks the store against its own checkpoint; answers the checkpoint's batch.
fn check_prefix(dir: &Path) -> u64 {
    let base = open(dir);
    let stored = base.checkpoint().unwrap();
    let last = stored.as_ref().map_or(0, |stored| u64::try_from(stored.stamped_at_ms).unwrap());
    assert_eq!(stored, (last > 0).then(|| checkpoint(last)));
    let batches = |entry| {
        if entry == 0 { last.max(1)..=last } else { 1..=last }
    };
    let mut expected: Vec<_> = (0..ENTRIES)
        .flat_map(|entry| batches(entry).map(move |batch| (key(batch, entry), value(batch))))
        .collect();
    expected.sort_unstable();
    let mut expected = expected.into_iter();
    let _ = base
        .scan(&KeyRange::family(Family::Ready), &mut |found, bytes| {
            let (key, value) = expected.next().expect("more than the batches of the checkpoint");
            assert_eq!((found, bytes), (&*key, &*value), "at checkpoint {last}");
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(expected.next(), None, "less than the batches of checkpoint {last}");
    last
}

#[test]
fn after_kill_9_the_store_is_the_state_of_its_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    let mut lost = 0;
    for round in 0..16u64 {
        let (mut child, lines) = spawn(&mut Command::new(&exe), dir.path());
        let mut left = 20 + round * 7_919 % 400;
        let (mut applied, mut flushed) = (0, 0);
        for line in lines.map_while(Result::ok) {
            applied = said(&line, "applied").unwrap_or(applied);
            flushed = said(&line, "flushed").unwrap_or(flushed);
            left = left.saturating_sub(1);
            if left == 0 {
                child.kill().unwrap();
            }
        }
        assert!(!child.wait().unwrap().success(), "it was killed");
        let kept = check_prefix(dir.path());
        assert!(kept >= flushed, "round {round}: flushed {flushed}, kept {kept}");
        lost += applied.saturating_sub(kept);
    }
    assert!(lost > 0, "no kill hit unflushed batches: the test shows nothing");
}

#[test]
fn a_full_disk_fails_the_task_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // The shell sets a limit on the size of files; beyond it the kernel refuses to write.
    let exe = std::env::current_exe().unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\""]).arg(exe);
    let (mut child, lines) = spawn(&mut shell, dir.path());
    let (mut applied, mut flushed, mut error) = (0, 0, None);
    for line in lines.map_while(Result::ok) {
        applied = said(&line, "applied").unwrap_or(applied);
        flushed = said(&line, "flushed").unwrap_or(flushed);
        if line.starts_with("error") {
            error = Some(line);
        }
    }
    assert!(child.wait().unwrap().success());
    let error = error.expect("the disk refused");
    assert!(error.starts_with("error Io the disk refused to "), "{error}");
    let kept = check_prefix(dir.path());
    assert!(kept >= flushed && applied >= kept, "flushed {flushed}, kept {kept}, {error}");
    assert_eq!(open(dir.path()).origin(), &Origin::Existing);
}
