//! A disk that is full, and one that may not be written: the hub says so, Kafka is left as it is,
//! and once the disk takes writes again the hub goes on by itself, with nothing lost or doubled.
//! The disk is a small file system of its own in memory. Where none may be mounted (not as root),
//! this says so and tests nothing.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use streaming_hub_integration::api::Wanted;
use streaming_hub_integration::check::Delivered;
use streaming_hub_integration::facts::Fact;
use streaming_hub_integration::generate::{Generator, Shape};
use streaming_hub_integration::http::{self, Ask};
use streaming_hub_integration::keeper::Keeper;
use streaming_hub_integration::world::{self, READY, World};
use streaming_hub_integration::{say, wait};

const FACTS: usize = 1_000;
/// How long the hub may take to notice: writes are on the disk after 30 s at the latest.
const NOTICED: Duration = Duration::from_secs(60);
const SETTLED: Duration = Duration::from_secs(120);

/// A file system of this size that ends with this value.
struct Disk {
    path: PathBuf,
    _keeper: Keeper,
}

impl Disk {
    fn new() -> Result<Self> {
        let path = tempfile::Builder::new().prefix("streaming-hub-disk-").tempdir()?.keep();
        let end = "umount -l \"$0\"; rmdir \"$0\"";
        let command = [OsStr::new("bash"), OsStr::new("-c"), OsStr::new(end), path.as_os_str()];
        let keeper = Keeper::new(&command)?;
        let disk = Self { path, _keeper: keeper };
        disk.mount(&["-t", "tmpfs", "-o", "size=32m", "streaming-hub"])?;
        Ok(disk)
    }

    fn mount(&self, arguments: &[&str]) -> Result<()> {
        let output = Command::new("mount").args(arguments).arg(&self.path).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "mount {arguments:?}: {said}");
        Ok(())
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }

    /// Takes all room that is left.
    fn fill(&self) -> Result<()> {
        let (mut file, block) = (File::create(self.filler())?, [0; 4_096]);
        while file.write_all(&block).is_ok() {}
        Ok(())
    }
}

#[test]
fn a_full_disk_and_a_read_only_one_are_named_and_leave_kafka_untouched() -> Result<()> {
    if !may_mount()? {
        say!("not run: file systems are mounted by root only");
        return Ok(());
    }
    let disk = Disk::new()?;
    let state = disk.path.join("state");
    let shape = Shape::default();
    let facts = Generator::new(31).facts(3 * FACTS, &shape);
    let tenants = shape.tenants.iter().map(String::as_str).collect::<Vec<_>>();
    world::run(
        &facts,
        |config| config.tenants(&tenants).set("state_dir", text(&state)),
        |world| {
            for tenant in &tenants {
                world.subscribe(Wanted::all(tenant, "all").in_flight(16))?;
            }
            world.produce(&facts[..FACTS])?;
            world.settle(SETTLED)?;
            full(world, &disk, &facts[FACTS..2 * FACTS])?;
            read_only(world, &disk, &facts[2 * FACTS..])?;
            world.check(Delivered::AtLeastOnce)?;
            Ok(())
        },
    )
}

/// Whether a file system may be mounted: as root, with the capability to.
fn may_mount() -> Result<bool> {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let own = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let own = own.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    Ok(own & CAP_SYS_ADMIN != 0)
}

/// The disk fills up under a hub that works, and has room again.
fn full(world: &mut World, disk: &Disk, facts: &[Fact]) -> Result<()> {
    say!("the disk is full");
    disk.fill()?;
    world.produce(facts)?;
    logged(world, "the disk refused to")?;
    logged(world, "No space left on device")?;
    not_ready(world)?;
    std::fs::remove_file(disk.filler())?;
    say!("the disk has room again");
    world.settle(SETTLED)?;
    world.hub.wait_ready(READY)?;
    world.check(Delivered::AtLeastOnce)?;
    Ok(())
}

/// A start on a disk that may not be written, and one on the same disk when it may be.
fn read_only(world: &mut World, disk: &Disk, facts: &[Fact]) -> Result<()> {
    world.hub.terminate(READY)?;
    disk.mount(&["-o", "remount,ro"])?;
    world.produce(facts)?;
    let before = world.internal.inbox()?.len();
    say!("the disk may only be read");
    world.hub.restart()?;
    let ended = wait::until("the start to be refused", NOTICED, || {
        Ok(world.hub.ended()?.ok_or_else(|| "it runs".to_owned()))
    })?;
    ensure!(!ended.success(), "the hub ended with {ended}");
    logged(world, "Read-only file system")?;
    ensure!(world.internal.inbox()?.len() == before, "a hub without a disk wrote to the inbox");
    world.hub.kill9()?;
    disk.mount(&["-o", "remount,rw"])?;
    world.hub.restart()?;
    world.settle(SETTLED)
}

fn logged(world: &World, wanted: &str) -> Result<()> {
    wait::until(&format!("the log to say {wanted:?}"), NOTICED, || {
        let log = std::fs::read_to_string(world.hub.config().log())?;
        Ok(if log.contains(wanted) { Ok(()) } else { Err("it does not yet".to_owned()) })
    })
}

fn not_ready(world: &World) -> Result<()> {
    wait::until("a hub that is not ready", NOTICED, || {
        let ask = Ask { method: "GET", target: "/readyz", ..Ask::default() };
        let answer = http::ask(world.hub.address(), &ask)?;
        Ok(if answer.status == 503 { Ok(()) } else { Err(answer.status.to_string()) })
    })
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
