//! Which shard runs on which core.
//!
//! A shard is pinned to a core of its own when the process may use enough of them (affinity mask, so also a cpuset);
//! otherwise all shards float, and the kernel places them.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::mem;

use crate::limits;
use crate::node::exit::{Exit, Failure};

/// Where shards run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorePlan {
    /// Shard `i` is pinned to the `i`-th core.
    Pinned(Vec<usize>),
    /// More shards than cores: none is pinned.
    Floating {
        /// Number of shards.
        shards: usize,
        /// Cores that they share.
        cores: Vec<usize>,
    },
}

impl CorePlan {
    /// Core of a shard, if it is pinned.
    pub fn core(&self, shard: usize) -> Option<usize> {
        match self {
            CorePlan::Pinned(cores) => Some(cores[shard]),
            CorePlan::Floating { .. } => None,
        }
    }
}

impl fmt::Display for CorePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |cores: &[usize]| cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        match self {
            CorePlan::Pinned(cores) if cores.len() == 1 => write!(f, "1 shard on core {}", cores[0]),
            CorePlan::Pinned(cores) => write!(f, "{} shards on cores {}", cores.len(), list(cores)),
            CorePlan::Floating { shards, cores } => write!(f, "{shards} shards over cores {}", list(cores)),
        }
    }
}

/// Number of shards for a new data directory: one per core that the process may use, less under a CPU quota.
pub fn default_shards() -> usize {
    let quota = std::thread::available_parallelism().map_or(1, usize::from);
    quota.clamp(1, allowed().len().clamp(1, limits::SHARDS_MAX))
}

/// Plans the cores of `shards` shards. `chosen` is the list of `--cpus`: one for each shard, in order.
pub fn plan(shards: usize, chosen: Option<&[usize]>) -> Result<CorePlan, Failure> {
    plan_from(shards, chosen, &allowed())
}

fn plan_from(shards: usize, chosen: Option<&[usize]>, allowed: &[usize]) -> Result<CorePlan, Failure> {
    let refused = |message: String| Err(Failure::new(Exit::Usage, message));
    let Some(chosen) = chosen else {
        if shards > allowed.len() {
            return Ok(CorePlan::Floating { shards, cores: allowed.to_vec() });
        }
        return Ok(CorePlan::Pinned(spread(allowed, sibling).into_iter().take(shards).collect()));
    };
    if let Some(core) = chosen.iter().find(|core| !allowed.contains(core)) {
        return refused(format!("--cpus names core {core}; this process may use {allowed:?}"));
    }
    if chosen.iter().collect::<BTreeSet<_>>().len() != chosen.len() {
        return refused(format!("--cpus names a core twice: {chosen:?}"));
    }
    if chosen.len() != shards {
        let message =
            format!("--cpus names {} cores for {shards} shards: it takes one for each", chosen.len());
        return refused(message);
    }
    Ok(CorePlan::Pinned(chosen.to_vec()))
}

/// Cores that this process may use, ascending. Read before any thread is pinned.
pub fn allowed() -> Vec<usize> {
    // SAFETY: a set of all zeros is a valid, empty one.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the kernel writes at most the given size into `set`.
    let result = unsafe { libc::sched_getaffinity(0, mem::size_of::<libc::cpu_set_t>(), &mut set) };
    if result != 0 {
        return vec![0];
    }
    let most = 8 * mem::size_of::<libc::cpu_set_t>();
    // SAFETY: `core` is below the number of bits of the set.
    (0..most).filter(|core| unsafe { libc::CPU_ISSET(*core, &set) }).collect()
}

/// Orders cores so that hardware threads of one physical core come last: few shards get a physical core each.
fn spread(cores: &[usize], sibling: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut taken = BTreeSet::new();
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for core in cores {
        if taken.insert(sibling(*core)) { first.push(*core) } else { rest.push(*core) }
    }
    first.extend(rest);
    first
}

/// The lowest hardware thread of the same physical core; the core itself where the kernel does not say.
fn sibling(core: usize) -> usize {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    let list = fs::read_to_string(path).unwrap_or_default();
    list.trim().split([',', '-']).next().and_then(|first| first.parse().ok()).unwrap_or(core)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_pinned_while_there_are_cores() {
        type Case = (usize, Option<&'static [usize]>, Result<&'static str, u8>);
        let table: [Case; 8] = [
            (1, None, Ok("1 shard on core 100")),
            (3, None, Ok("3 shards on cores 100,101,105")),
            (4, None, Ok("4 shards over cores 100,101,105")),
            (2, Some(&[105, 100]), Ok("2 shards on cores 105,100")),
            (2, Some(&[100, 102]), Err(2)),
            (2, Some(&[100, 100]), Err(2)),
            (2, Some(&[100]), Err(2)),
            (1, Some(&[100, 101]), Err(2)),
        ];
        for (shards, chosen, expected) in table {
            let plan = plan_from(shards, chosen, &[100, 101, 105]);
            let text = plan.map(|plan| plan.to_string()).map_err(|failure| failure.code);
            assert_eq!(text, expected.map(str::to_owned), "{shards} {chosen:?}");
        }
    }

    #[test]
    fn physical_cores_come_first() {
        assert_eq!(spread(&[0, 1, 2, 3], |core| core % 2), [0, 1, 2, 3]);
        assert_eq!(spread(&[0, 1, 2, 3], |core| core / 2), [0, 2, 1, 3]);
        assert_eq!(spread(&[5, 7], |core| core), [5, 7]);
    }

    #[test]
    fn this_process_may_use_a_core() {
        let allowed = allowed();
        assert!(!allowed.is_empty());
        assert!((1..=allowed.len()).contains(&default_shards()), "{} of {allowed:?}", default_shards());
    }
}
