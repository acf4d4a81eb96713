//! Open files of a cache, and their lent pages, as Python objects.

use crate::held::{FileNumber, Held, State};
use crate::work::usage;
use mglru_cache::{Advice, CachedFile, Error, Map, OwnedPageGuard};
use mglru_core::PAGE_BYTES;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// The device of sources. Their pages are never changed.
const SOURCE: FileNumber = (u64::MAX, 0);

/// Bytes that are read or written between two looks at pending signals.
const STEP_BYTES: usize = 1 << 20;

/// The open parts of a file.
struct Opened {
    file: CachedFile,
    /// Made for the first page that is lent.
    map: Mutex<Option<Arc<Map>>>,
}

/// An open or a closed file.
#[pyclass(frozen, module = "mglru._mglru")]
pub struct File {
    opened: Mutex<Option<Arc<Held<Opened>>>>,
    state: Arc<Held<State>>,
    path: PathBuf,
    number: FileNumber,
}

#[pymethods]
impl File {
    /// As Python has it: `os.fsencode` gives the bytes of any path.
    fn path(&self) -> &OsStr {
        self.path.as_os_str()
    }

    /// Closes the handle; what is dirty is written in the background. A second call does nothing.
    fn close(&self, py: Python<'_>) {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(opened));
    }

    fn is_closed(&self) -> bool {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Length in bytes.
    fn len(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |opened| Ok(opened.file.len()))
    }

    /// Up to `size` bytes from `offset` on; fewer only at the end of the file.
    fn read_at<'py>(&self, py: Python<'py>, size: u64, offset: u64) -> PyResult<Bound<'py, PyBytes>> {
        let len = self.len_for(py, offset.saturating_add(size))?;
        let wanted = size.min(len.saturating_sub(offset)) as usize;
        let mut read = 0;
        let bytes = PyBytes::new_with(py, wanted, |buffer| {
            read = self.read(py, buffer, offset)?;
            Ok(())
        })?;
        if read == wanted { Ok(bytes) } else { Ok(PyBytes::new(py, &bytes.as_bytes()[..read])) }
    }

    /// Writes all bytes at `offset`.
    fn write_at(&self, py: Python<'_>, bytes: PyBackedBytes, offset: u64) -> PyResult<usize> {
        let last = offset.saturating_add(bytes.len() as u64).saturating_sub(1);
        if let (Ok(first), false) = (u32::try_from(offset / PAGE_BYTES), bytes.is_empty()) {
            let last = u32::try_from(last / PAGE_BYTES).unwrap_or(u32::MAX);
            self.state.get().check_not_lent(self.number, first..=last, &self.path)?;
        }
        let opened = self.opened()?;
        let (file, mut done) = (&opened.get().file, 0);
        let written = self.state.get().repeat(py, || {
            let end = bytes.len().min(done + STEP_BYTES);
            match file.write_at(&bytes[done..end], offset.saturating_add(done as u64)) {
                Err(error) => Some(Err(error)),
                Ok(_) if end == bytes.len() => Some(Ok(end)),
                Ok(_) => {
                    done = end;
                    None
                }
            }
        });
        py.detach(|| drop(opened));
        written
    }

    fn truncate(&self, py: Python<'_>, len: u64) -> PyResult<()> {
        if let (Ok(page), false) = (u32::try_from(len / PAGE_BYTES), len.is_multiple_of(PAGE_BYTES)) {
            self.state.get().check_not_lent(self.number, page..=page, &self.path)?;
        }
        self.call(py, |opened| opened.file.truncate(len))
    }

    /// Writes dirty pages, without a sync.
    fn write_back(&self, py: Python<'_>) -> PyResult<()> {
        if !self.call(py, |opened| Ok(opened.file.has_unwritten()))? {
            return Ok(());
        }
        let opened = self.opened()?;
        let written = self.state.get().wait(py, opened.get().file.write_back_async());
        py.detach(|| drop(opened));
        written
    }

    /// Writes dirty pages to stable storage; `all`: with all metadata.
    fn sync(&self, py: Python<'_>, all: bool) -> PyResult<()> {
        let opened = self.opened()?;
        let file = &opened.get().file;
        let sync = if all { file.sync_all_async() } else { file.sync_data_async() };
        let synced = self.state.get().wait(py, sync);
        py.detach(|| drop(opened));
        synced
    }

    /// Evicts whole pages in a range of bytes. Returns how many are in memory afterwards.
    fn evict(&self, py: Python<'_>, start: u64, end: u64) -> PyResult<u64> {
        self.call(py, |opened| {
            opened.unmap();
            opened.file.evict(start..end)
        })
    }

    /// Declares how a range will be used.
    fn advise(&self, py: Python<'_>, advice: &str, start: u64, end: u64) -> PyResult<()> {
        let advice = match advice {
            "normal" => Advice::Normal,
            "sequential" => Advice::Sequential,
            "random" => Advice::Random,
            "will_need" => Advice::WillNeed,
            "dont_need" => Advice::DontNeed,
            "no_reuse" => Advice::NoReuse,
            _ => {
                return Err(usage(
                    py,
                    format_args!(
                        "unknown advice `{advice}`; expected normal, sequential, random, will_need, dont_need or no_reuse"
                    ),
                ));
            }
        };
        self.call(py, |opened| {
            if advice == Advice::DontNeed {
                opened.unmap();
            }
            opened.file.advise(advice, start..end)
        })
    }

    /// Pages of a range of bytes, and accesses through this handle.
    fn stats<'py>(&self, py: Python<'py>, start: u64, end: u64) -> PyResult<Bound<'py, PyDict>> {
        let (pages, (hits, misses)) =
            self.call(py, |opened| Ok((opened.file.pages_in(start..end), opened.file.accesses())))?;
        let fields = PyDict::new(py);
        for (name, count) in [
            ("hits", hits),
            ("misses", misses),
            ("cached_pages", pages.cached),
            ("dirty_pages", pages.dirty),
            ("writeback_pages", pages.writeback),
            ("evicted_pages", pages.evicted),
        ] {
            fields.set_item(name, count)?;
        }
        Ok(fields)
    }

    /// Lends a page.
    fn page(&self, py: Python<'_>, index: u32) -> PyResult<Page> {
        let offset = u64::from(index) * PAGE_BYTES;
        self.len_for(py, offset + PAGE_BYTES)?;
        if self.number == SOURCE && !self.is_resident(py, offset)? {
            // Ctrl-C ends the read, and would not end that of the map.
            self.read(py, &mut [0], offset)?;
        }
        let guard = self.call(py, |opened| opened.map()?.page_owned(index))?;
        self.state.get().lend(self.number, index);
        Ok(Page { guard: Held::new(guard), state: self.state.clone(), number: self.number, index })
    }
}

impl Opened {
    /// Forgets the map: a mapped page is in use, also after it was given back. Lent pages stay
    /// lent.
    fn unmap(&self) {
        let map = self.map.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(map);
    }

    fn map(&self) -> Result<Arc<Map>, Error> {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        match &*map {
            Some(map) => Ok(map.clone()),
            None => Ok(map.insert(Arc::new(self.file.map()?)).clone()),
        }
    }
}

impl File {
    pub fn new(state: &Arc<Held<State>>, file: CachedFile, path: &Path) -> PyResult<File> {
        let data = std::fs::metadata(path)?;
        Ok(File { number: (data.dev(), data.ino()), ..File::of_source(state, file, path.to_owned()) })
    }

    pub fn of_source(state: &Arc<Held<State>>, file: CachedFile, path: PathBuf) -> File {
        let opened = Mutex::new(Some(Arc::new(Held::new(Opened { file, map: Mutex::default() }))));
        File { opened, state: state.clone(), path, number: SOURCE }
    }

    /// Calls the file without the interpreter's lock.
    fn call<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Opened) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let opened = self.opened()?;
        let result = self.state.get().work(py, || work(opened.get()));
        py.detach(|| drop(opened));
        result
    }

    /// Length for a read up to byte `end`. One beyond the known end looks whether another process
    /// has changed the length: the cache does so at reads that reach the end only.
    fn len_for(&self, py: Python<'_>, end: u64) -> PyResult<u64> {
        let len = self.len(py)?;
        if end <= len || self.number == SOURCE {
            return Ok(len);
        }
        self.call(py, |opened| {
            opened.file.read_at(&mut [0], len)?;
            Ok(opened.file.len())
        })
    }

    /// Whether the page of an offset is in memory.
    fn is_resident(&self, py: Python<'_>, offset: u64) -> PyResult<bool> {
        self.call(py, |opened| {
            let mut resident = [false];
            opened.file.resident(offset, &mut resident);
            Ok(resident[0])
        })
    }

    /// Reads at an offset. Ctrl-C ends the read: of a source, which may take long, at any time.
    fn read(&self, py: Python<'_>, buffer: &mut [u8], offset: u64) -> PyResult<usize> {
        let opened = self.opened()?;
        let (file, state) = (&opened.get().file, self.state.get());
        let read = if self.number == SOURCE {
            state.wait(py, file.read_at_async(buffer, offset))
        } else {
            let mut done = 0;
            state.repeat(py, || {
                let end = buffer.len().min(done + STEP_BYTES);
                match file.read_at(&mut buffer[done..end], offset.saturating_add(done as u64)) {
                    Err(error) => Some(Err(error)),
                    Ok(read) => {
                        done += read;
                        (done < end || end == buffer.len()).then_some(Ok(done))
                    }
                }
            })
        };
        py.detach(|| drop(opened));
        read
    }

    fn opened(&self) -> PyResult<Arc<Held<Opened>>> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone();
        opened.ok_or_else(|| {
            PyValueError::new_err(format!("I/O operation on closed file {}", self.path.display()))
        })
    }
}

/// A lent page. It stays in memory, unchanged, until the object is dropped.
#[pyclass(frozen, module = "mglru._mglru")]
pub struct Page {
    guard: Held<OwnedPageGuard>,
    state: Arc<Held<State>>,
    number: FileNumber,
    index: u32,
}

#[pymethods]
impl Page {
    fn __len__(&self) -> usize {
        self.guard.get().len()
    }

    /// Where the bytes are, for as long as this object lives.
    fn address(&self) -> usize {
        self.guard.get().as_ptr() as usize
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.state.get().take_back(self.number, self.index);
    }
}
