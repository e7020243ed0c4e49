//! The file seam: everything the log does to a disk goes through [`Store`] (one directory) and [`File`].
//!
//! Contract:
//! - reads and writes are whole blocks at block boundaries; one function, [`check_range`], says so for every operation;
//! - a file opened with [`Mode::WriteDurable`] has each write on the device before it completes;
//! - operations are never cancelled by their caller: they are awaited to the end, in a task of their own;
//! - no error is retried here. A write may be short; the caller continues it.
//!
//! [`DirectStore`] is the real one (O_DIRECT on io_uring). `simulated` has the one that crashes on demand.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;

use glommio::GlommioError;
use glommio::io::{DmaFile, OpenOptions, ReadResult};

use crate::limits::BLOCK_BYTES;
use crate::storage::buffer::AlignedBuffer;
use crate::storage::ring::WriteRing;

/// A future on the shard's thread.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reads only.
    Read,
    /// Reads and writes; a write is durable after [`File::sync`].
    Write,
    /// Reads and writes; a write is durable when it completes.
    WriteDurable,
}

/// One directory of files. Names contain no slash.
pub trait Store {
    /// Opens an existing file.
    fn open<'a>(&'a self, name: &'a str, mode: Mode) -> LocalFuture<'a, io::Result<Rc<dyn File>>>;
    /// Creates an empty file, for [`Mode::Write`]; an existing one is an error.
    fn create<'a>(&'a self, name: &'a str) -> LocalFuture<'a, io::Result<Rc<dyn File>>>;
    /// Writes a small file as a whole, replacing what was there, and syncs it.
    fn write_whole<'a>(&'a self, name: &'a str, bytes: Vec<u8>) -> LocalFuture<'a, io::Result<()>>;
    /// Reads a small file as a whole; `None` if there is none.
    fn read_whole<'a>(&'a self, name: &'a str) -> LocalFuture<'a, io::Result<Option<Vec<u8>>>>;
    /// Renames a file, replacing the one that has the new name. Durable after [`Store::sync_dir`].
    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> LocalFuture<'a, io::Result<()>>;
    /// Removes a file.
    fn remove<'a>(&'a self, name: &'a str) -> LocalFuture<'a, io::Result<()>>;
    /// Names of all files, sorted.
    fn list(&self) -> LocalFuture<'_, io::Result<Vec<String>>>;
    /// Makes creations, renames and removals durable.
    fn sync_dir(&self) -> LocalFuture<'_, io::Result<()>>;
    /// Bytes that may still be allocated.
    fn available_bytes(&self) -> LocalFuture<'_, io::Result<u64>>;
    /// `name` as an operator would look for it.
    fn path_of(&self, name: &str) -> String;
}

/// An open file.
pub trait File {
    /// Reads `len` bytes at `position`; fewer only at the end of the file.
    fn read_at(&self, position: u64, len: usize) -> LocalFuture<'_, io::Result<ReadBytes>>;
    /// Writes the first `len` bytes of `buffer` at `position`; the number written may be smaller.
    fn write_at<'a>(
        &'a self,
        buffer: &'a Rc<AlignedBuffer>,
        len: usize,
        position: u64,
    ) -> LocalFuture<'a, io::Result<usize>>;
    /// Makes everything written so far durable.
    fn sync(&self) -> LocalFuture<'_, io::Result<()>>;
    /// Reserves space so that the file is `bytes` long; what was not written reads as zeros.
    fn allocate(&self, bytes: u64) -> LocalFuture<'_, io::Result<()>>;
    /// Gives back the space of whole blocks, which then read as zeros; the length stays. What a device cannot give back it
    /// keeps.
    fn deallocate(&self, blocks: Range<u64>) -> LocalFuture<'_, io::Result<()>> {
        let _ = blocks;
        Box::pin(async { Ok(()) })
    }
    /// Length of the file.
    fn file_bytes(&self) -> LocalFuture<'_, io::Result<u64>>;
    /// Closes the file, if this is the last reference to it.
    fn close(self: Rc<Self>) -> LocalFuture<'static, ()>;
}

/// What a read returned.
pub enum ReadBytes {
    /// In the executor's memory.
    Direct(ReadResult),
    /// On the heap.
    Heap(Vec<u8>),
}

impl Deref for ReadBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            ReadBytes::Direct(result) => result,
            ReadBytes::Heap(bytes) => bytes,
        }
    }
}

/// Every operation's alignment and bounds. For block 4096: position 8192, length 12288 pass; 8192, 100 and 512, 4096 do not.
pub fn check_range(position: u64, len: usize) {
    assert!(position.is_multiple_of(BLOCK_BYTES as u64), "position {position} is not at a block");
    assert!(len.is_multiple_of(BLOCK_BYTES) && len > 0, "{len} bytes at {position} are not whole blocks");
}

/// Reads exactly `len` bytes: a shorter file is an error, so that missing bytes are never taken for zeros.
pub async fn read_exact(file: &dyn File, position: u64, len: usize) -> io::Result<ReadBytes> {
    let bytes = file.read_at(position, len).await?;
    if bytes.len() < len {
        let message = format!("{} of {len} bytes at position {position}: the file ends there", bytes.len());
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
    }
    Ok(bytes)
}

thread_local! {
    static UNDER_WAY: Cell<usize> = const { Cell::new(0) };
}

/// Operations of this thread that only the executor can complete: while there are any, it must not be kept from its turns.
pub fn under_way() -> usize {
    UNDER_WAY.get()
}

/// Counts an operation that the executor completes.
struct UnderWay;

impl UnderWay {
    fn begin() -> UnderWay {
        UNDER_WAY.set(UNDER_WAY.get() + 1);
        UnderWay
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        UNDER_WAY.set(UNDER_WAY.get() - 1);
    }
}

/// A directory on a real file system.
pub struct DirectStore {
    dir: PathBuf,
    ring: Option<Rc<WriteRing>>,
}

impl DirectStore {
    /// The store over an existing directory. Everything goes through the executor.
    pub fn new(dir: &Path) -> DirectStore {
        DirectStore { dir: dir.to_path_buf(), ring: None }
    }

    /// The store over an existing directory whose writes go through a ring of the shard's own.
    pub fn with_ring(dir: &Path, ring: Rc<WriteRing>) -> DirectStore {
        DirectStore { dir: dir.to_path_buf(), ring: Some(ring) }
    }

    fn file(&self, file: DmaFile) -> Rc<dyn File> {
        Rc::new(DirectFile { file: Rc::new(file), ring: self.ring.clone() })
    }
}

/// Runs a rare metadata operation on the executor's blocking thread. It never panics: a panic there would hang the caller.
async fn blocking<T: Send + 'static>(
    operation: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let _counted = UnderWay::begin();
    glommio::executor().spawn_blocking(operation).await
}

fn io_error(error: GlommioError<()>) -> io::Error {
    match error.raw_os_error() {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::other(error.to_string()),
    }
}

impl Store for DirectStore {
    fn open<'a>(&'a self, name: &'a str, mode: Mode) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        Box::pin(async move {
            let mut options = OpenOptions::new();
            options.read(true).write(mode != Mode::Read);
            if mode == Mode::WriteDurable {
                options.custom_flags(libc::O_DSYNC);
            }
            let _counted = UnderWay::begin();
            Ok(self.file(options.dma_open(self.dir.join(name)).await.map_err(io_error)?))
        })
    }

    fn create<'a>(&'a self, name: &'a str) -> LocalFuture<'a, io::Result<Rc<dyn File>>> {
        Box::pin(async move {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).mode(0o644);
            let _counted = UnderWay::begin();
            Ok(self.file(options.dma_open(self.dir.join(name)).await.map_err(io_error)?))
        })
    }

    fn write_whole<'a>(&'a self, name: &'a str, bytes: Vec<u8>) -> LocalFuture<'a, io::Result<()>> {
        let path = self.dir.join(name);
        Box::pin(blocking(move || {
            let mut file = std::fs::File::create(&path)?;
            io::Write::write_all(&mut file, &bytes)?;
            file.sync_all()
        }))
    }

    fn read_whole<'a>(&'a self, name: &'a str) -> LocalFuture<'a, io::Result<Option<Vec<u8>>>> {
        let path = self.dir.join(name);
        Box::pin(blocking(move || match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }))
    }

    fn rename<'a>(&'a self, from: &'a str, to: &'a str) -> LocalFuture<'a, io::Result<()>> {
        let (from, to) = (self.dir.join(from), self.dir.join(to));
        Box::pin(blocking(move || std::fs::rename(from, to)))
    }

    fn remove<'a>(&'a self, name: &'a str) -> LocalFuture<'a, io::Result<()>> {
        let path = self.dir.join(name);
        Box::pin(blocking(move || std::fs::remove_file(path)))
    }

    fn list(&self) -> LocalFuture<'_, io::Result<Vec<String>>> {
        let dir = self.dir.clone();
        Box::pin(blocking(move || {
            let mut names = Vec::new();
            for entry in std::fs::read_dir(dir)? {
                // A name that is not UTF-8 is none of ours.
                names.extend(entry?.file_name().into_string());
            }
            names.sort_unstable();
            Ok(names)
        }))
    }

    fn sync_dir(&self) -> LocalFuture<'_, io::Result<()>> {
        let dir = self.dir.clone();
        Box::pin(blocking(move || std::fs::File::open(dir)?.sync_all()))
    }

    fn available_bytes(&self) -> LocalFuture<'_, io::Result<u64>> {
        let dir = self.dir.clone();
        Box::pin(blocking(move || available_bytes(&dir)))
    }

    fn path_of(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }
}

/// Bytes that an ordinary user may still allocate on the file system of `dir`.
pub fn available_bytes(dir: &Path) -> io::Result<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(dir.as_os_str().as_bytes())?;
    let mut stat = std::mem::MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: `path` is a terminated string and `stat` is large enough; both outlive the call.
    let result = unsafe { libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it filled the whole structure.
    let stat = unsafe { stat.assume_init() };
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

struct DirectFile {
    file: Rc<DmaFile>,
    ring: Option<Rc<WriteRing>>,
}

impl File for DirectFile {
    fn read_at(&self, position: u64, len: usize) -> LocalFuture<'_, io::Result<ReadBytes>> {
        check_range(position, len);
        Box::pin(async move {
            let _counted = UnderWay::begin();
            let result = self.file.read_at_aligned(position, len).await.map_err(io_error)?;
            Ok(ReadBytes::Direct(result))
        })
    }

    fn write_at<'a>(
        &'a self,
        buffer: &'a Rc<AlignedBuffer>,
        len: usize,
        position: u64,
    ) -> LocalFuture<'a, io::Result<usize>> {
        check_range(position, len);
        Box::pin(async move {
            if let Some(ring) = &self.ring {
                return ring.write(self.file.as_raw_fd(), buffer, len, position).await;
            }
            let _counted = UnderWay::begin();
            let prefix = AlignedBuffer::prefix(buffer, len);
            let result = self.file.write_rc_at(prefix.dma(), position).await;
            prefix.release();
            result.map_err(io_error)
        })
    }

    fn sync(&self) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let _counted = UnderWay::begin();
            self.file.fdatasync().await.map_err(io_error)
        })
    }

    fn allocate(&self, bytes: u64) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let _counted = UnderWay::begin();
            self.file.pre_allocate(bytes, false).await.map_err(io_error)
        })
    }

    fn deallocate(&self, blocks: Range<u64>) -> LocalFuture<'_, io::Result<()>> {
        let len = blocks.end - blocks.start;
        check_range(blocks.start, len as usize);
        Box::pin(async move {
            let _counted = UnderWay::begin();
            match self.file.deallocate(blocks.start, len).await.map_err(io_error) {
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
                done => done,
            }
        })
    }

    fn file_bytes(&self) -> LocalFuture<'_, io::Result<u64>> {
        // By descriptor: the executor asks by path, which a rename would mislead.
        Box::pin(async move { file_len(self.file.as_raw_fd()) })
    }

    fn close(self: Rc<Self>) -> LocalFuture<'static, ()> {
        Box::pin(async move {
            if let Ok(file) = Rc::try_unwrap(self) {
                let _counted = UnderWay::begin();
                // What was to be durable is durable already; a failing close changes nothing.
                let _ = file.file.close_rc().await;
            }
        })
    }
}

fn file_len(fd: std::os::fd::RawFd) -> io::Result<u64> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the descriptor belongs to an open file for the length of the call, and `stat` is large enough.
    let result = unsafe { libc::fstat(fd, stat.as_mut_ptr()) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call succeeded, so it filled the whole structure.
    let stat = unsafe { stat.assume_init() };
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}
