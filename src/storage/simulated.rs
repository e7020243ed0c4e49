//! A directory in memory that crashes, tears writes and fails on demand, so that the production code runs on it.
//!
//! Fault model:
//! - every operation that changes something has a number; a crash strikes at a chosen one. That operation takes effect in
//!   part ([`Torn`]), everything after it fails, and [`SimulatedStore::after_crash`] is what a restart finds;
//! - what was not synced may be there after a crash or not, write by write and sector by sector ([`Unsynced`]);
//! - a write through a [`Mode::WriteDurable`] file is durable once it has completed;
//! - names change durably at `sync_dir`; before it, a crash keeps a prefix of the changes (as a journal does);
//! - single operations can be made to fail, to write short, or to wait; ranges can be made unreadable; space can run out.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::rc::Rc;

use futures_lite::future::yield_now;

use crate::limits::BLOCK_BYTES;
use crate::storage::buffer::AlignedBuffer;
use crate::storage::device::{File, LocalFuture, Mode, ReadBytes, Store, check_range};

/// A device writes sectors, not blocks: the unit in which a write is torn.
const SECTOR_BYTES: usize = 512;

/// What a crash leaves of the operation it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Torn {
    /// Nothing.
    Nothing,
    /// All of it, though nobody was told.
    All,
    /// The first half of the sectors.
    FirstHalf,
    /// The second half of the sectors.
    SecondHalf,
    /// Every second sector.
    Alternate,
    /// All but the first sector.
    AllButFirst,
}

impl Torn {
    /// Every variant.
    pub const ALL: [Torn; 6] =
        [Torn::Nothing, Torn::All, Torn::FirstHalf, Torn::SecondHalf, Torn::Alternate, Torn::AllButFirst];

    fn keeps(self, sector: usize, sectors: usize) -> bool {
        match self {
            Torn::Nothing => false,
            Torn::All => true,
            Torn::FirstHalf => sector < sectors / 2,
            Torn::SecondHalf => sector >= sectors / 2,
            Torn::Alternate => sector.is_multiple_of(2),
            Torn::AllButFirst => sector > 0,
        }
    }
}

/// What a crash leaves of completed operations that were not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsynced {
    /// Nothing.
    Lost,
    /// Everything.
    Kept,
    /// Every second write, and half of the name changes.
    Half,
}

impl Unsynced {
    /// Every variant.
    pub const ALL: [Unsynced; 3] = [Unsynced::Lost, Unsynced::Kept, Unsynced::Half];
}

#[derive(Clone, Default)]
struct Image {
    /// What reads see.
    current: Vec<u8>,
    /// What certainly survives.
    durable: Vec<u8>,
    /// Completed writes since the last sync.
    unsynced: Vec<(usize, Vec<u8>)>,
}

impl Image {
    fn write(&mut self, position: usize, bytes: &[u8]) {
        patch(&mut self.current, position, bytes);
    }

    fn sync(&mut self) {
        self.durable.clone_from(&self.current);
        self.unsynced.clear();
    }
}

fn patch(target: &mut Vec<u8>, position: usize, bytes: &[u8]) {
    if target.len() < position + bytes.len() {
        target.resize(position + bytes.len(), 0);
    }
    target[position..position + bytes.len()].copy_from_slice(bytes);
}

#[derive(Clone)]
enum NameChange {
    Set(String, usize),
    Remove(String),
    Rename(String, String),
}

fn apply(names: &mut BTreeMap<String, usize>, change: &NameChange) {
    match change {
        NameChange::Set(name, image) => {
            names.insert(name.clone(), *image);
        }
        NameChange::Remove(name) => {
            names.remove(name);
        }
        NameChange::Rename(from, to) => {
            if let Some(image) = names.remove(from) {
                names.insert(to.clone(), image);
            }
        }
    }
}

#[derive(Default)]
struct State {
    images: Vec<Image>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    name_changes: Vec<NameChange>,
    /// Operations so far, by what they did; the index is the operation's number.
    trace: Vec<String>,
    crash_at: Option<(usize, Torn)>,
    crashed: bool,
    failures: BTreeMap<usize, i32>,
    short_writes: BTreeSet<usize>,
    unreadable: Vec<(String, Range<u64>)>,
    capacity_bytes: Option<u64>,
    writes_held: bool,
    /// Writes that are being held back.
    writes_waiting: usize,
}

/// Whether an operation takes effect.
enum Step {
    Whole,
    Short,
    Torn(Torn),
}

impl State {
    /// Numbers an operation and decides its fate.
    fn step(&mut self, what: String) -> io::Result<Step> {
        if self.crashed {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let number = self.trace.len();
        self.trace.push(what);
        if let Some((at, torn)) = self.crash_at
            && at == number
        {
            self.crashed = true;
            return Ok(Step::Torn(torn));
        }
        if let Some(errno) = self.failures.remove(&number) {
            return Err(io::Error::from_raw_os_error(errno));
        }
        Ok(if self.short_writes.remove(&number) { Step::Short } else { Step::Whole })
    }

    /// For operations that a crash does either wholly or not at all.
    fn atomic_step(&mut self, what: String) -> io::Result<bool> {
        match self.step(what)? {
            Step::Torn(torn) => Ok(torn == Torn::All),
            Step::Whole | Step::Short => Ok(true),
        }
    }

    /// After the effect of an operation: the crash, if it struck this one.
    fn outcome(&self) -> io::Result<()> {
        if self.crashed { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
    }

    fn change_name(&mut self, change: NameChange) {
        apply(&mut self.names, &change);
        self.name_changes.push(change);
    }

    fn allocated_bytes(&self) -> u64 {
        self.names.values().map(|&image| self.images[image].current.len() as u64).sum()
    }

    fn find(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
    }
}

/// The directory. Clones share it.
#[derive(Clone, Default)]
pub struct SimulatedStore {
    state: Rc<RefCell<State>>,
}

impl SimulatedStore {
    /// An empty directory with unlimited space.
    pub fn new() -> SimulatedStore {
        SimulatedStore::default()
    }

    /// Operations so far; the next one has this number.
    pub fn operations(&self) -> usize {
        self.state.borrow().trace.len()
    }

    /// What operation `number` did.
    pub fn operation(&self, number: usize) -> String {
        self.state.borrow().trace[number].clone()
    }

    /// Crash at operation `number`.
    pub fn crash_at(&self, number: usize, torn: Torn) {
        self.state.borrow_mut().crash_at = Some((number, torn));
    }

    /// Whether the crash has struck.
    pub fn crashed(&self) -> bool {
        self.state.borrow().crashed
    }

    /// Make operation `number` fail without effect.
    pub fn fail_at(&self, number: usize, errno: i32) {
        self.state.borrow_mut().failures.insert(number, errno);
    }

    /// Make operation `number`, a write, write one block only.
    pub fn short_write_at(&self, number: usize) {
        self.state.borrow_mut().short_writes.insert(number);
    }

    /// Make reads of a part of a file fail.
    pub fn make_unreadable(&self, name: &str, range: Range<u64>) {
        self.state.borrow_mut().unreadable.push((name.to_string(), range));
    }

    /// Limit the bytes that all files together may have; `None` for no limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.borrow_mut().capacity_bytes = bytes;
    }

    /// Hold writes back, or let them go on.
    pub fn hold_writes(&self, held: bool) {
        self.state.borrow_mut().writes_held = held;
    }

    /// Writes that are being held back now.
    pub fn writes_waiting(&self) -> usize {
        self.state.borrow().writes_waiting
    }

    /// The bytes of a file.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        let state = self.state.borrow();
        state.images[state.names[name]].current.clone()
    }

    /// Whether there is a file of that name.
    pub fn exists(&self, name: &str) -> bool {
        self.state.borrow().names.contains_key(name)
    }

    /// Changes a file behind everyone's back, durably.
    pub fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state.borrow_mut();
        let image = state.names[name];
        change(&mut state.images[image].current);
        state.images[image].sync();
    }

    /// What a restart finds: the durable state, and of the rest what `unsynced` says.
    pub fn after_crash(&self, unsynced: Unsynced) -> SimulatedStore {
        let state = self.state.borrow();
        let keeps = |index: usize| match unsynced {
            Unsynced::Lost => false,
            Unsynced::Kept => true,
            Unsynced::Half => index.is_multiple_of(2),
        };
        let mut names = state.durable_names.clone();
        let kept_changes = match unsynced {
            Unsynced::Lost => 0,
            Unsynced::Kept => state.name_changes.len(),
            Unsynced::Half => state.name_changes.len().div_ceil(2),
        };
        for change in &state.name_changes[..kept_changes] {
            apply(&mut names, change);
        }
        let images = state.images.iter().map(|image| {
            let mut bytes = image.durable.clone();
            for (index, (position, written)) in image.unsynced.iter().enumerate() {
                if keeps(index) {
                    patch(&mut bytes, *position, written);
                }
            }
            Image { current: bytes.clone(), durable: bytes, unsynced: Vec::new() }
        });
        let restarted =
            State { images: images.collect(), durable_names: names.clone(), names, ..State::default() };
        SimulatedStore { state: Rc::new(RefCell::new(restarted)) }
    }

    fn file(&self, name: &str, image: usize, mode: Mode) -> Rc<dyn File> {
        Rc::new(SimulatedFile { state: Rc::clone(&self.state), name: name.to_string(), image, mode })
    }
}

impl Store for SimulatedStore {
    fn open<'a>(&'a self, name: &'a str, mode: Mode) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        Box::pin(async move {
            yield_now().await;
            let state = self.state.borrow();
            state.outcome()?;
            let image = state.find(name)?;
            Ok(self.file(name, image, mode))
        })
    }

    fn create<'a>(&'a self, name: &'a str) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        Box::pin(async move {
            yield_now().await;
            let mut state = self.state.borrow_mut();
            if state.names.contains_key(name) {
                return Err(io::Error::from_raw_os_error(libc::EEXIST));
            }
            let takes_effect = state.atomic_step(format!("create {name}"))?;
            let image = state.images.len();
            if takes_effect {
                state.images.push(Image::default());
                state.change_name(NameChange::Set(name.to_string(), image));
            }
            state.outcome()?;
            Ok(self.file(name, image, Mode::Write))
        })
    }

    fn write_whole<'a>(&'a self, name: &'a str, bytes: Vec<u8>) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            yield_now().await;
            let mut state = self.state.borrow_mut();
            let kept = match state.step(format!("write whole {name}"))? {
                Step::Torn(Torn::Nothing) => 0,
                Step::Torn(Torn::All) | Step::Whole | Step::Short => bytes.len(),
                Step::Torn(_) => bytes.len() / 2,
            };
            let image = state.images.len();
            let mut content = Image { current: bytes[..kept].to_vec(), ..Image::default() };
            content.sync();
            state.images.push(content);
            state.change_name(NameChange::Set(name.to_string(), image));
            state.outcome()
        })
    }

    fn read_whole<'a>(&'a self, name: &'a str) -> LocalFuture<'a, io::Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            yield_now().await;
            let state = self.state.borrow();
            state.outcome()?;
            if state.unreadable.iter().any(|(unreadable, _)| unreadable == name) {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            Ok(state.names.get(name).map(|&image| state.images[image].current.clone()))
        })
    }

    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            yield_now().await;
            let mut state = self.state.borrow_mut();
            state.find(from)?;
            if state.atomic_step(format!("rename {from} to {to}"))? {
                state.change_name(NameChange::Rename(from.to_string(), to.to_string()));
            }
            state.outcome()
        })
    }

    fn remove<'a>(&'a self, name: &'a str) -> LocalFuture<'a, io::Result<()>> {
        Box::pin(async move {
            yield_now().await;
            let mut state = self.state.borrow_mut();
            state.find(name)?;
            if state.atomic_step(format!("remove {name}"))? {
                state.change_name(NameChange::Remove(name.to_string()));
            }
            state.outcome()
        })
    }

    fn list(&self) -> LocalFuture<'_, io::Result<Vec<String>>> {
        Box::pin(async move {
            yield_now().await;
            let state = self.state.borrow();
            state.outcome()?;
            Ok(state.names.keys().cloned().collect())
        })
    }

    fn sync_dir(&self) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            yield_now().await;
            let mut state = self.state.borrow_mut();
            if state.atomic_step("sync directory".to_string())? {
                state.durable_names = state.names.clone();
                state.name_changes.clear();
            }
            state.outcome()
        })
    }

    fn available_bytes(&self) -> LocalFuture<'_, io::Result<u64>> {
        Box::pin(async move {
            yield_now().await;
            let state = self.state.borrow();
            let capacity = state.capacity_bytes.unwrap_or(u64::MAX);
            Ok(capacity.saturating_sub(state.allocated_bytes()))
        })
    }

    fn path_of(&self, name: &str) -> String {
        name.to_string()
    }
}

struct SimulatedFile {
    state: Rc<RefCell<State>>,
    name: String,
    image: usize,
    mode: Mode,
}

impl File for SimulatedFile {
    fn read_at(&self, position: u64, len: usize) -> LocalFuture<'_, io::Result<ReadBytes>> {
        check_range(position, len);
        Box::pin(async move {
            yield_now().await;
            let state = self.state.borrow();
            state.outcome()?;
            let wanted = position..position + len as u64;
            let overlaps = |range: &Range<u64>| range.start < wanted.end && wanted.start < range.end;
            if state.unreadable.iter().any(|(name, range)| *name == self.name && overlaps(range)) {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            let bytes = &state.images[self.image].current;
            let start = (position as usize).min(bytes.len());
            let end = (position as usize + len).min(bytes.len());
            Ok(ReadBytes::Heap(bytes[start..end].to_vec()))
        })
    }

    fn write_at<'a>(
        &'a self,
        buffer: &'a Rc<AlignedBuffer>,
        len: usize,
        position: u64,
    ) -> LocalFuture<'a, io::Result<usize>> {
        check_range(position, len);
        assert!(self.mode != Mode::Read, "{} is open for reading only", self.name);
        Box::pin(async move {
            yield_now().await;
            self.state.borrow_mut().writes_waiting += 1;
            while self.state.borrow().writes_held {
                yield_now().await;
            }
            self.state.borrow_mut().writes_waiting -= 1;
            let bytes = &buffer.bytes()[..len];
            let mut state = self.state.borrow_mut();
            let step = state.step(format!("write {} at {position}, {len} bytes", self.name))?;
            let image = &mut state.images[self.image];
            let position = position as usize;
            let written = if matches!(step, Step::Short) { BLOCK_BYTES } else { len };
            if let Step::Torn(torn) = step {
                for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                    if torn.keeps(index, len / SECTOR_BYTES) {
                        patch(&mut image.durable, position + index * SECTOR_BYTES, sector);
                    }
                }
            } else {
                image.write(position, &bytes[..written]);
                match self.mode {
                    Mode::WriteDurable => patch(&mut image.durable, position, &bytes[..written]),
                    _ => image.unsynced.push((position, bytes[..written].to_vec())),
                }
            }
            state.outcome()?;
            Ok(written)
        })
    }

    fn sync(&self) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            yield_now().await;
            let mut state = self.state.borrow_mut();
            if state.atomic_step(format!("sync {}", self.name))? {
                state.images[self.image].sync();
            }
            state.outcome()
        })
    }

    fn allocate(&self, bytes: u64) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            yield_now().await;
            let mut state = self.state.borrow_mut();
            let grown = bytes.saturating_sub(state.images[self.image].current.len() as u64);
            if state.capacity_bytes.is_some_and(|capacity| state.allocated_bytes() + grown > capacity) {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            if state.atomic_step(format!("allocate {}", self.name))? {
                let mut longer = vec![0; bytes as usize];
                let current = &mut state.images[self.image].current;
                longer[..current.len()].copy_from_slice(current);
                *current = longer;
            }
            state.outcome()
        })
    }

    fn file_bytes(&self) -> LocalFuture<'_, io::Result<u64>> {
        Box::pin(async move {
            yield_now().await;
            Ok(self.state.borrow().images[self.image].current.len() as u64)
        })
    }

    fn close(self: Rc<Self>) -> LocalFuture<'static, ()> {
        Box::pin(async {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_lite::future::block_on;

    fn buffer(fill: u8, bytes: usize) -> Rc<AlignedBuffer> {
        let mut buffer = AlignedBuffer::new(bytes);
        buffer.bytes_mut().fill(fill);
        Rc::new(buffer)
    }

    #[test]
    fn what_was_not_synced_may_be_lost() {
        block_on(async {
            let store = SimulatedStore::new();
            let file = store.create("a").await.expect("created");
            file.allocate(8192).await.expect("allocated");
            file.sync().await.expect("synced");
            store.sync_dir().await.expect("synced");
            file.write_at(&buffer(1, 4096), 4096, 0).await.expect("written");
            assert_eq!(store.after_crash(Unsynced::Lost).bytes("a"), vec![0; 8192]);
            assert_eq!(store.after_crash(Unsynced::Kept).bytes("a")[..4096], [1; 4096]);
            let durable = store.open("a", Mode::WriteDurable).await.expect("opened");
            durable.write_at(&buffer(2, 4096), 4096, 4096).await.expect("written");
            assert_eq!(store.after_crash(Unsynced::Lost).bytes("a")[4096..], [2; 4096]);
            store.rename("a", "b").await.expect("renamed");
            assert!(store.after_crash(Unsynced::Lost).exists("a"));
            assert!(store.after_crash(Unsynced::Kept).exists("b"));
        });
    }

    #[test]
    fn a_crash_tears_the_write_it_strikes() {
        block_on(async {
            for torn in Torn::ALL {
                let store = SimulatedStore::new();
                let file = store.create("a").await.expect("created");
                file.allocate(4096).await.expect("allocated");
                file.sync().await.expect("synced");
                store.sync_dir().await.expect("synced");
                store.crash_at(store.operations(), torn);
                file.write_at(&buffer(1, 4096), 4096, 0).await.expect_err("crashed");
                assert!(store.crashed());
                let ones =
                    store.after_crash(Unsynced::Lost).bytes("a").iter().filter(|&&byte| byte == 1).count();
                let expected = match torn {
                    Torn::Nothing => 0,
                    Torn::All => 4096,
                    Torn::AllButFirst => 4096 - 512,
                    _ => 2048,
                };
                assert_eq!(ones, expected, "{torn:?}");
                file.sync().await.expect_err("gone");
            }
        });
    }
}
