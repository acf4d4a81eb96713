//! Opening files and sources.
//!
//! # Locking
//!
//! The set of known files is locked to find the file or add it. Memory for its metadata is charged
//! before that, because charging may wait for reclaim.

use crate::backend::{BackendFile, OpenMode};
use crate::error::Error;
use crate::fault::Metadata;
use crate::file::{CachedFile, HANDLE_BYTES};
use crate::inode::{Inode, LEN_MAX};
use crate::source::{BlockSource, SourceFile, not_writable};
use crate::tenant::Tenant;
use mglru_core::{Kind, Mapping, Task};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// Bytes charged per file: its mapping and the metadata of this cache and the backend.
const FILE_BYTES: u64 = (size_of::<Mapping>() + size_of::<Inode>()) as u64 + 512;

impl Tenant {
    /// Opens a file. Pages that are first read or written through this handle are charged to this
    /// tenant. Handles on the same file share its pages, also across tenants.
    ///
    /// Pages stay cached while any handle is open. After the last one is closed, dirty pages are
    /// written and the cache forgets the file, so that a later open sees changes by other
    /// processes.
    ///
    /// # Errors
    /// The system refuses to open the file, the file is beyond 16 TiB, the cache is closed, or no
    /// memory is left for the metadata of an open file: [`Error::Killed`] if the tenant was killed.
    pub fn open(&self, path: impl AsRef<Path>, mode: OpenMode) -> Result<CachedFile, Error> {
        self.open_path(path.as_ref(), mode)
    }

    fn open_path(&self, path: &Path, mode: OpenMode) -> Result<CachedFile, Error> {
        let shared = self.shared();
        // Before the file is created.
        shared.check_open()?;
        let fail = |source| Error::io("open", path, source);
        self.open_file(path, shared.backend.open(path, mode).map_err(fail)?, mode, None)
    }

    /// Opens a source. Its pages are charged to this tenant as those of a file ([`Self::open`]).
    /// [`OpenMode::Create`] is the same as [`OpenMode::ReadWrite`].
    ///
    /// # Errors
    /// The source has no state now, is beyond 16 TiB, or cannot be written although `mode` says so;
    /// a source of the same name and version that cannot be written is open; the cache is closed,
    /// or no memory is left for the metadata of an open file.
    pub fn open_source(&self, source: Arc<dyn BlockSource>, mode: OpenMode) -> Result<CachedFile, Error> {
        self.shared().check_open()?;
        let name = PathBuf::from(source.name());
        let fail = |source| Error::io("open", &name, source);
        if mode != OpenMode::ReadOnly && !source.is_writable() {
            return Err(fail(not_writable(&source.name())));
        }
        let (file, may_be_old) = self.shared().sources.open(source).map_err(fail)?;
        if mode != OpenMode::ReadOnly && !file.is_writable() {
            let what = "it is open through a source that cannot be written: drop those handles first";
            return Err(fail(io::Error::new(io::ErrorKind::ResourceBusy, what)));
        }
        self.open_file(&name, file.clone(), mode, may_be_old.then_some(&file))
    }

    /// Opens a handle on a file of the backend. `path`: for messages. `known`: the file, if it is a
    /// source whose length may be an old one, because it was opened before.
    fn open_file(
        &self,
        path: &Path,
        file: Arc<dyn BackendFile>,
        mode: OpenMode,
        known: Option<&Arc<SourceFile>>,
    ) -> Result<CachedFile, Error> {
        let shared = self.shared();
        let fail = |source| Error::io("open", path, source);
        let len_of = |file: &Arc<dyn BackendFile>| match file.len().map_err(fail)? {
            len if len > LEN_MAX => Err(Error::TooLarge { path: path.to_owned(), end: len }),
            len => Ok(len),
        };
        // A file that is too large is refused before anything is charged.
        len_of(&file)?;
        let writable = mode != OpenMode::ReadOnly;
        let task = Task { cpu: shared.cpu(), ..self.state().task(0) };
        let charge = shared.charge_metadata(&task, HANDLE_BYTES)?;
        let mut charge_of_file = None;
        let (inode, is_new) = loop {
            let mut inodes = shared.lock_inodes();
            let known = inodes.find(file.identity()).cloned();
            let (inode, is_new) = match (known, &mut charge_of_file) {
                (Some(inode), _) => {
                    if writable {
                        let mut known = inode.writable.lock().unwrap_or_else(PoisonError::into_inner);
                        known.get_or_insert(file);
                    }
                    (inode, false)
                }
                (None, charge @ Some(_)) => {
                    // Not before: the cache may have known the file until now, and its write-back
                    // may have extended the file meanwhile. Now nothing is on its way.
                    let len = len_of(&file)?;
                    let mapping = shared.core.open_mapping(Kind::File);
                    let inode = Arc::new(Inode::new(file, writable, mapping, len));
                    charge.take().into_iter().for_each(|paid: Metadata| inodes.insert(&inode, paid.keep()));
                    (inode, true)
                }
                (None, None) => {
                    drop(inodes);
                    charge_of_file = Some(shared.charge_metadata(&task, FILE_BYTES)?);
                    continue;
                }
            };
            if inode.handles.fetch_add(1, Ordering::AcqRel) == 0 {
                inode.stale.store(true, Ordering::Release);
            }
            break (inode, is_new);
        };
        drop(charge_of_file);
        let tenant = self.state().clone();
        let handle = CachedFile::new(shared.clone(), inode.clone(), tenant, writable, charge.keep());
        {
            // Of several threads that open the file at once, each waits until outdated pages are
            // gone. None drops a page that another one has read or lent since.
            let _one = inode.opening.lock().unwrap_or_else(PoisonError::into_inner);
            if inode.stale.load(Ordering::Acquire) {
                if let Some(source) = known {
                    source.look_again().map_err(fail)?;
                }
                inode.stale.store(false, Ordering::Release);
                // The cache was about to forget this file; its pages may be out of date.
                shared.drop_clean_pages(&inode, 0..1 << 32);
            }
        }
        // The length of a new one was read a moment ago.
        if !is_new || known.is_some() {
            inode.revalidate(shared)?;
        }
        Ok(handle)
    }
}
