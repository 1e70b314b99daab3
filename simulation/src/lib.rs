//! A deterministic simulation of the hub (design 25): the real sessions, restores and processors
//! over a fake cluster, a virtual clock and stores in memory, several instances, and a seed that
//! gives schedule, faults and workload. The invariants of the design are checked after each step
//! and at the end; the same seed gives the same run.
//!
//! - [`cluster`] is the fake cluster; [`clients`], [`logs`] and [`disks`] stand where the hub's own
//!   Kafka clients and stores stand; [`seam`] is where faults strike.
//! - [`world`] is the scheduler; [`run`] runs one seed, [`shrink`] makes a failing one small.
//! - [`history`] and [`check`] are the invariants over plain data, for other tests as well.
//! - [`defect`] lists what is broken on purpose to show that the simulation notices.

pub mod arena;
pub mod check;
pub mod clients;
pub mod clock;
pub mod cluster;
pub mod consumers;
pub mod defect;
pub mod destinations;
pub mod disks;
pub mod faults;
pub mod follower;
pub mod history;
pub mod logs;
pub mod observe;
pub mod print;
pub mod process;
pub mod random;
pub mod run;
pub mod seam;
pub mod shape;
pub mod shrink;
pub mod threads;
pub mod trace;
pub mod workload;
pub mod world;
