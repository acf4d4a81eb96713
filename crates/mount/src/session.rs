//! The life of a mount: checked, mounted, served, unmounted, written back.

use crate::allocator;
use crate::buffers::Buffers;
use crate::content::Files;
use crate::error::Error;
use crate::fs::{Passthrough, Served};
use crate::known::Channel;
use crate::node::Nodes;
use crate::record::RecordOptions;
use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use mglru_cache::PageCache;
use mglru_watch::{Address, Requests, Watch};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// How to serve a mount.
pub struct Options {
    /// Number of threads that answer requests, and so of requests in progress.
    pub threads: usize,
    /// Whether other users than the one who mounts may use the mount. Modes are checked either way.
    pub other_users: bool,
    /// Whether and where to record what programs ask for.
    pub record: Option<RecordOptions>,
    /// Which programs belong to which tenant of the cache. More can be said in the control tree.
    pub members: Vec<Member>,
    /// Number of descriptors that the mount may use. By default as many as the system permits: the
    /// limit of the process is raised as far as possible.
    pub descriptors: Option<u64>,
    /// Where to serve the state of the mount, for `mglru top`, Prometheus and browsers.
    pub listen: Vec<Address>,
}

/// Assigns programs to a tenant of the cache, by the tenant's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The tenant's path, such as `a/b`.
    pub tenant: String,
    /// The programs that belong to it.
    pub who: Who,
}

/// Programs, by what they are or by what they open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// All programs of a user, by number.
    User(u32),
    /// Programs that open files below a directory: its path in the mounted one, or its absolute
    /// path.
    Below(String),
}

/// Counts of a mount: requests of programs, and work of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// The programs' requests.
    pub requests: Requests,
    /// Accesses to pages that were in memory.
    pub hits: u64,
    /// Accesses to pages that were not in memory.
    pub misses: u64,
    /// Memory, in pages, with which a replay of the recording does what the mount did.
    pub memory_pages: u64,
    /// Where the recording is, and why it ended early if it did.
    pub recorded: Option<(PathBuf, Result<(), String>)>,
}

impl Default for Options {
    fn default() -> Options {
        let other_users = rustix::process::geteuid().is_root();
        Options {
            threads: 16,
            other_users,
            record: None,
            members: Vec::new(),
            descriptors: None,
            listen: Vec::new(),
        }
    }
}

impl Options {
    /// Refuses a recording and sockets that the mount would hide.
    fn check_files(&self, mountpoint: &Path) -> Result<(), Error> {
        let recording = self.record.as_ref().map(|record| ("recording", &record.path));
        let sockets = self.listen.iter().filter_map(|address| match address {
            Address::Unix(path) => Some(("socket", path)),
            _ => None,
        });
        match recording.into_iter().chain(sockets).find(|(_, path)| is_below(path, mountpoint)) {
            None => Ok(()),
            Some((what, path)) => Err(Error::usage(format_args!(
                "the {what} {} would be inside of the mount: choose a file elsewhere",
                path.display()
            ))),
        }
    }
}

/// A mounted directory.
pub struct Mount {
    session: Session<Served>,
    passthrough: Arc<Passthrough>,
    mountpoint: PathBuf,
    watches: Vec<Watch>,
    cache: Arc<Mutex<Option<PageCache>>>,
}

/// Ends a mount from another thread.
pub struct Unmounter {
    mountpoint: PathBuf,
    helper: Mutex<SessionUnmounter>,
    /// The cache, until the mount has ended.
    cache: Arc<Mutex<Option<PageCache>>>,
}

/// How a request to unmount ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// The mount is gone.
    Now,
    /// Programs have files open. The mount point is free, and the mount ends when they close them.
    WhenClosed,
}

impl Unmounter {
    /// Unmounts, and writes to the mounted directory what programs have written by then.
    /// [`Mount::serve`] returns once no program uses the mount any more.
    ///
    /// # Errors
    /// The system refuses to unmount. A file that cannot be written is an error of
    /// [`Mount::serve`], if it still cannot be written in the end.
    pub fn unmount(&self) -> Result<Unmounted, Error> {
        let unmounted = self.detach()?;
        // Programs may use the mount for long: those with open files, and those in another
        // namespace. A service manager does not wait for them, and kills this process.
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let _ = cache.map(|cache| cache.sync());
        Ok(unmounted)
    }

    fn detach(&self) -> Result<Unmounted, Error> {
        match unmount(&self.mountpoint, UnmountFlags::empty()) {
            Ok(()) => Ok(Unmounted::Now),
            Err(Errno::BUSY) => match unmount(&self.mountpoint, UnmountFlags::DETACH) {
                Ok(()) => Ok(Unmounted::WhenClosed),
                Err(error) => Err(self.failed(error.into())),
            },
            // Another user than root needs the helper program `fusermount3`.
            Err(Errno::PERM) => {
                let mut helper = self.helper.lock().unwrap_or_else(PoisonError::into_inner);
                helper.unmount().map(|()| Unmounted::Now).map_err(|error| self.failed(error))
            }
            // It is unmounted already.
            Err(Errno::INVAL | Errno::NOENT) => Ok(Unmounted::Now),
            Err(error) => Err(self.failed(error.into())),
        }
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::work(format_args!("cannot unmount {}: {error}", self.mountpoint.display()))
    }
}

impl Mount {
    /// Mounts `directory` at `mountpoint`, an empty directory, with `cache` for the content of its
    /// files.
    ///
    /// Nothing is served before [`Self::serve`]: until then, everyone who looks at the mount point
    /// waits, the calling thread too. Dropping the mount instead unmounts it.
    ///
    /// From then on glibc's allocator maps blocks of 16 MiB and more in this process, and no
    /// smaller ones (`M_MMAP_THRESHOLD`), and each of its heaps keeps up to 32 MiB of freed blocks
    /// (`M_TRIM_THRESHOLD`): without that, buffers take memory beyond the budget. Other allocators
    /// are left as they are.
    ///
    /// # Errors
    /// [`Error::Usage`]: one of the directories cannot be used, or the system does not permit to
    /// mount.
    pub fn new(
        directory: &Path,
        mountpoint: &Path,
        cache: PageCache,
        options: Options,
    ) -> Result<Mount, Error> {
        let named = [directory, mountpoint].map(std::path::absolute);
        let (from, mountpoint) = check(directory, mountpoint)?;
        // As the user may call the directory and the mount point: by links, and without.
        let tops: Vec<PathBuf> =
            named.into_iter().flatten().chain([from.clone(), mountpoint.clone()]).collect();
        options.check_files(&mountpoint)?;
        let cannot = |error: &dyn std::fmt::Display| {
            Error::usage(format_args!("cannot mount {}: {error}", directory.display()))
        };
        // Files are opened by their descriptors' names there.
        fs::metadata("/proc/self/fd").map_err(|error| {
            cannot(&format_args!("/proc/self/fd: {error}: mount /proc (`mount -t proc proc /proc`)"))
        })?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open(directory, flags, Mode::empty()).map_err(|error| cannot(&io::Error::from(error)))?;
        let root = cache.tenant("").map_err(|error| cannot(&error))?;
        let budget_bytes = cache.stats().budget_bytes;
        let threads = options.threads.max(1);
        let buffers = Buffers::new(&root, budget_bytes, threads).map_err(|_| {
            Error::usage(format_args!(
                "the memory of the cache has no room for the requests of {threads} threads: choose fewer threads \
                 or more memory"
            ))
        })?;
        let (idle_max, names_max) = shares(options.descriptors.unwrap_or_else(raise_descriptors));
        let nodes = Nodes::new(fd, names_max, root, budget_bytes)
            .map_err(|refused| cannot(&io::Error::from(refused.0)))?;
        let files = Files::new(cache, idle_max).map_err(|error| cannot(&error))?;
        let cache = Arc::new(Mutex::new(Some(files.cache.clone())));
        let passthrough = Arc::new(Passthrough::new(from, nodes, files, buffers));
        for Member { tenant, who } in &options.members {
            match who {
                Who::User(uid) => passthrough.membership().assign_user(tenant, *uid),
                Who::Below(prefix) => {
                    let inside = below(prefix, &tops, |inside| directory.join(inside).exists());
                    passthrough.membership().assign_prefix(tenant, inside).map_err(|_| {
                        let directory = directory.display();
                        Error::usage(format_args!(
                            "the path `{prefix}` of tenant '{tenant}' leads out of {directory}: name a directory \
                             in it, without .."
                        ))
                    })?;
                }
            }
        }
        let watch = |address| Watch::start(address, &passthrough).map_err(Error::usage);
        let watches = options.listen.iter().map(watch).collect::<Result<_, _>>()?;
        let config = config(directory, threads, options.other_users);
        allocator::map_large_blocks();
        let session = Session::new(Served(passthrough.clone()), &mountpoint, &config)
            .map_err(|error| refused_mount(&mountpoint, &error))?;
        // The last step, so that no other can fail and leave a trace of nothing.
        options.record.map(|record| passthrough.record(record)).transpose()?;
        Ok(Mount { session, passthrough, mountpoint, watches, cache })
    }

    /// A handle that ends the mount.
    pub fn unmounter(&mut self) -> Unmounter {
        let helper = Mutex::new(self.session.unmount_callable());
        Unmounter { mountpoint: self.mountpoint.clone(), helper, cache: self.cache.clone() }
    }

    /// Where the state of the mount is served, in the order of [`Options::listen`]; ports that the
    /// system chose are filled in.
    pub fn listening(&self) -> impl Iterator<Item = &Address> {
        self.watches.iter().map(Watch::address)
    }

    /// Serves requests until the directory is unmounted, then writes everything back.
    ///
    /// # Errors
    /// [`Error::Work`]: the connection to the kernel broke, or dirty pages could not be written;
    /// they are lost.
    pub fn serve(self) -> Result<Summary, Error> {
        let Mount { session, passthrough, mountpoint, watches, cache } = self;
        let device = session.as_fd().try_clone_to_owned().map_err(Error::work)?;
        let channel = Channel { notifier: session.notifier(), device: Mutex::new(Some(device)) };
        passthrough.set_channel(channel);
        let limited = passthrough.clone();
        let limit = std::thread::Builder::new().name("mglru-names".to_owned());
        let limit = limit.spawn(move || limited.limit_known()).map_err(Error::work)?;
        let served = session.run().or_else(|error| match Errno::from_io_error(&error) {
            // A thread was receiving a last request, such as to close a file, when the mount ended.
            Some(Errno::CONNABORTED) => Ok(()),
            _ => Err(error),
        });
        // They may hold a reference until they end.
        drop(watches);
        passthrough.nodes().known.end();
        if let Err(panic) = limit.join() {
            std::panic::resume_unwind(panic);
        }
        let written = passthrough.finish();
        *cache.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let summary = Arc::into_inner(passthrough).map(Passthrough::end);
        if let Err(error) = written {
            let at = mountpoint.display();
            return Err(Error::work(format_args!("{at} was unmounted, and data is lost: {error}")));
        }
        match (served, summary) {
            (Ok(()), Some(summary)) => Ok(summary),
            (Ok(()), None) => unreachable!("all threads of the session have ended"),
            (Err(error), _) => {
                Err(Error::work(format_args!("the mount at {} broke off: {error}", mountpoint.display())))
            }
        }
    }
}

/// The options of the FUSE library.
fn config(directory: &Path, threads: usize, other_users: bool) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(directory.display().to_string().replace(',', " ")),
        // The kind of the mount in lists of mounts: `fuse.mglru`.
        MountOption::CUSTOM("subtype=mglru".to_owned()),
        MountOption::DefaultPermissions,
    ];
    config.acl = if other_users { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(threads);
    config
}

/// Whether a file is, or would be, below a directory.
fn is_below(file: &Path, directory: &Path) -> bool {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::canonicalize(parent).is_ok_and(|parent| parent.starts_with(directory))
}

/// Checks the directories of a mount, as [`Mount::new`] does first. A large cache takes seconds to
/// build: a program that checks before it says at once what is wrong with them.
///
/// # Errors
/// As those of [`Mount::new`] about the directories.
pub fn check_directories(directory: &Path, mountpoint: &Path) -> Result<(), Error> {
    check(directory, mountpoint).map(|_| ())
}

/// The directory that a tenant's path names, relative to the mounted one. A path with a slash
/// before it is relative, too. If no such directory exists, it may be the absolute path of one:
/// below the mounted directory or the mount point.
fn below<'a>(path: &'a str, tops: &[PathBuf], exists: impl Fn(&Path) -> bool) -> &'a str {
    let absolute = Path::new(path);
    match absolute.strip_prefix("/") {
        Ok(relative) if !exists(relative) => {
            let inside = tops.iter().find_map(|top| absolute.strip_prefix(top).ok());
            inside.and_then(Path::to_str).unwrap_or(path)
        }
        _ => path,
    }
}

/// Checks both directories. Returns them without symbolic links.
fn check(directory: &Path, mountpoint: &Path) -> Result<(PathBuf, PathBuf), Error> {
    let resolve = |path: &Path, what: &str| {
        // The path of a mount without a process can be resolved; its attributes cannot be read.
        let found = fs::canonicalize(path).and_then(|resolved| Ok((fs::metadata(path)?, resolved)));
        let (metadata, resolved) = found.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NOTCONN) => Error::gone(path),
            Some(Errno::NOENT) => Error::work(format_args!("{what} {}: {error}", path.display())),
            _ => Error::usage(format_args!("{what} {}: {error}", path.display())),
        })?;
        if metadata.is_dir() {
            Ok(resolved)
        } else {
            Err(Error::usage(format_args!("{what} {} is not a directory", path.display())))
        }
    };
    let (from, at) = (resolve(directory, "the directory")?, resolve(mountpoint, "the mount point")?);
    if at.starts_with(&from) {
        return Err(Error::usage(format_args!(
            "the mount point {} is inside of {}: choose one outside, or the mount would contain itself",
            at.display(),
            from.display()
        )));
    }
    if is_mounted(&at) {
        return Err(Error::usage(format_args!(
            "something is mounted at {} already: unmount it, or choose another mount point",
            at.display()
        )));
    }
    let mut entries = fs::read_dir(&at)
        .map_err(|error| Error::usage(format_args!("the mount point {}: {error}", at.display())))?;
    if entries.next().is_some() {
        return Err(Error::usage(format_args!(
            "the mount point {} is not empty, and its files would be hidden: choose an empty directory",
            at.display()
        )));
    }
    Ok((from, at))
}

/// Whether a path without symbolic links is where a file system is mounted.
fn is_mounted(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
    path.parent().is_none_or(|parent| device(parent) != device(path))
}

/// The system's refusal to mount, with what to do.
fn refused_mount(mountpoint: &Path, error: &io::Error) -> Error {
    let reason = if !Path::new("/dev/fuse").exists() {
        "there is no /dev/fuse: load the kernel's module (`modprobe fuse`), or pass the device to the \
         container (`--device /dev/fuse --cap-add SYS_ADMIN`)"
            .to_owned()
    } else if error.kind() == io::ErrorKind::NotFound {
        "this user may not mount, and the program `fusermount3` is not installed: install the package \
         `fuse3`, or mount as root"
            .to_owned()
    } else if error.kind() == io::ErrorKind::PermissionDenied {
        format!("{error}: mount as root, or with `--device /dev/fuse --cap-add SYS_ADMIN` in a container")
    } else {
        error.to_string()
    };
    Error::usage(format_args!("cannot mount at {}: {reason}", mountpoint.display()))
}

/// Raises the limit of open descriptors as far as the system permits: each file that a program has
/// open holds three. With `CAP_SYS_RESOURCE` that is `fs.nr_open`. Returns the limit.
fn raise_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let most = fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    for wanted in [most.max(limit.maximum), limit.maximum] {
        if setrlimit(Resource::Nofile, Rlimit { current: wanted, maximum: wanted }).is_ok() {
            return wanted.unwrap_or(u64::MAX);
        }
    }
    limit.current.unwrap_or(u64::MAX)
}

/// How many files may stay cached after they were closed, and how many names may have an open
/// descriptor. An idle file has two descriptors, so that each takes a quarter of all. The other
/// half is for open files.
fn shares(descriptors: u64) -> (usize, usize) {
    let share = |part: u64| usize::try_from(descriptors / part).unwrap_or(usize::MAX).clamp(16, 1 << 16);
    (share(8), share(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absolute_path_is_one_below_the_directory_unless_that_has_such_a_directory() {
        let tops = ["/srv", "/data/srv", "/mnt/srv"].map(PathBuf::from);
        for (path, inside) in [
            ("db", "db"),
            ("/db", "/db"),
            ("/srv/db", "db"),
            ("/data/srv/db/hot", "db/hot"),
            ("/mnt/srv/db", "db"),
            ("/srv", ""),
            ("/srvdb", "/srvdb"),
            ("srv/db", "srv/db"),
            ("/srv/there", "/srv/there"),
        ] {
            let found = below(path, &tops, |relative| relative == Path::new("srv/there"));
            assert_eq!(found, inside, "{path}");
        }
    }
}
