//! Memory of what the mount remembers of each file that the kernel knows: a part of the budget.
//!
//! A name is charged to the tenant of the program that looks it up. Its size is what programs
//! looked up, and the kernel says when it forgets a file. Above an eighth of the tenant's limit, a
//! thread asks the kernel to forget files and directories that no program uses, longest unused
//! first. It is a thread of its own because a kernel before Linux 6.18 locks the directory of a
//! name for that, and a program that made a request may hold this lock. Such a kernel forgets no
//! directory: it would take a program's working directory away.
//!
//! # Locking
//!
//! The ledger is a leaf.

use crate::content::Files;
use crate::node::{Nodes, Victim};
use fuser::{INodeNo, Notifier};
use mglru_cache::{Error, Reserved, Tenant};
use mglru_workload::PAGE_BYTES;
use rustix::io::Errno;
use std::collections::HashMap;
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// One part of a limit in as many.
const SHARE: u64 = 8;

/// Bytes that are reserved at once.
const CHUNK_BYTES: u64 = 16 << 10;

/// Files that become known before the next search if none can be forgotten, as all are open.
const PATIENCE: u64 = 1024;

/// How long a request waits for the kernel to forget files of a tenant that has no room.
const WAIT: Duration = Duration::from_millis(100);

/// The account of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Payer(u32);

impl Payer {
    /// The root.
    pub(crate) const ROOT: Payer = Payer(0);
}

/// The names and reserved memory of a tenant.
struct Account {
    tenant: Tenant,
    /// Bytes that it should not exceed.
    max_bytes: u64,
    used_bytes: u64,
    /// Each has `CHUNK_BYTES`.
    reserved: Vec<Reserved>,
    /// The tenant had no room for more.
    is_short: bool,
}

impl Account {
    fn new(tenant: Tenant, max_bytes: u64) -> Account {
        Account { tenant, max_bytes, used_bytes: 0, reserved: Vec::new(), is_short: false }
    }
}

struct Ledger {
    /// By number. The first is the root's.
    accounts: Vec<Account>,
    by_path: HashMap<String, Payer>,
    /// Files that became known while their tenant had too many.
    added: u64,
    ended: bool,
}

impl Ledger {
    fn of(&mut self, payer: Payer) -> &mut Account {
        &mut self.accounts[payer.0 as usize]
    }
}

/// The channel to the kernel, to ask it to forget.
pub(crate) struct Channel {
    pub(crate) notifier: Notifier,
    /// The device of the mount, for [`PRUNE`], which the library lacks. `None` once the kernel has
    /// refused it as unknown.
    pub(crate) device: Mutex<Option<OwnedFd>>,
}

/// The memory of known files.
pub(crate) struct Known {
    root: Tenant,
    budget_bytes: u64,
    ledger: Mutex<Ledger>,
    /// There is something for the thread to do.
    changed: Condvar,
    /// Files were forgotten.
    forgotten: Condvar,
    channel: OnceLock<Channel>,
}

impl Known {
    /// At most about an eighth of `budget_bytes` is charged to `root`, and of its limit to another
    /// tenant.
    pub(crate) fn new(root: Tenant, budget_bytes: u64) -> Known {
        let accounts = vec![Account::new(root.clone(), budget_bytes / SHARE)];
        let ledger = Ledger { accounts, by_path: HashMap::new(), added: 0, ended: false };
        Known {
            root,
            budget_bytes,
            ledger: Mutex::new(ledger),
            changed: Condvar::new(),
            forgotten: Condvar::new(),
            channel: OnceLock::new(),
        }
    }

    /// Sets the channel to the kernel.
    pub(crate) fn set_channel(&self, channel: Channel) {
        let _ = self.channel.set(channel);
    }

    /// The channel to the kernel, once the mount is served.
    pub(crate) fn notifier(&self) -> Option<&Notifier> {
        self.channel.get().map(|channel| &channel.notifier)
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The most memory that the root should pay for.
    pub(crate) fn max_bytes(&self) -> u64 {
        self.budget_bytes / SHARE
    }

    /// The most memory that a tenant should pay for: a share of the smallest limit above it.
    fn max_bytes_of(&self, tenant: &Tenant) -> u64 {
        let path = tenant.name();
        let ends = path.match_indices('/').map(|(at, _)| at).chain((!path.is_empty()).then_some(path.len()));
        let limit = |end: usize| self.root.child(&path[..end]).ok()?.stats().max_pages;
        let limits = ends.filter_map(limit).map(|pages| pages * PAGE_BYTES);
        limits.chain([self.budget_bytes]).min().unwrap_or(self.budget_bytes) / SHARE
    }

    /// The account of a tenant; that of the root for `None`.
    pub(crate) fn payer(&self, tenant: Option<&Tenant>) -> Payer {
        let Some(tenant) = tenant.filter(|tenant| !tenant.name().is_empty()) else { return Payer::ROOT };
        let ledger = &mut *self.lock();
        if let Some(&payer) = ledger.by_path.get(tenant.name())
            && ledger.of(payer).tenant.is_online()
        {
            return payer;
        }
        // Its limit is looked up when the first chunk is reserved.
        let account = Account::new(tenant.clone(), 0);
        // Of a tenant that was removed, and whose files are all forgotten.
        let is_free = |account: &Account| account.used_bytes == 0 && !account.tenant.is_online();
        let place = ledger.accounts.iter().position(is_free).unwrap_or(ledger.accounts.len());
        if place == ledger.accounts.len() {
            ledger.accounts.push(account);
        } else {
            ledger.accounts[place] = account;
        }
        let payer = Payer(place as u32);
        ledger.by_path.retain(|_, known| *known != payer);
        ledger.by_path.insert(tenant.name().to_owned(), payer);
        payer
    }

    /// Charges a file. May have to wait for pages to be reclaimed, or for other files to be
    /// forgotten.
    ///
    /// # Errors
    /// As for [`Tenant::reserve`].
    pub(crate) fn add(&self, payer: Payer, bytes: u64) -> Result<(), Error> {
        self.try_add(payer, bytes).or_else(|_| {
            let used_bytes = self.lock().of(payer).used_bytes;
            let is_full = |ledger: &mut Ledger| ledger.of(payer).used_bytes >= used_bytes && !ledger.ended;
            drop(self.forgotten.wait_timeout_while(self.lock(), WAIT, is_full));
            self.try_add(payer, bytes)
        })
    }

    fn try_add(&self, payer: Payer, bytes: u64) -> Result<(), Error> {
        loop {
            let tenant = {
                let mut ledger = self.lock();
                let account = ledger.of(payer);
                if account.used_bytes + bytes <= account.reserved.len() as u64 * CHUNK_BYTES {
                    account.used_bytes += bytes;
                    if account.used_bytes > account.max_bytes {
                        ledger.added += 1;
                        self.changed.notify_one();
                    }
                    return Ok(());
                }
                account.tenant.clone()
            };
            let more = tenant.reserve(CHUNK_BYTES).inspect_err(|_| {
                let mut ledger = self.lock();
                ledger.of(payer).is_short = true;
                ledger.added += 1;
                self.changed.notify_one();
            })?;
            let max_bytes = self.max_bytes_of(&tenant);
            let mut ledger = self.lock();
            let account = ledger.of(payer);
            account.reserved.push(more);
            account.max_bytes = max_bytes;
        }
    }

    /// Ends a charge of [`Self::add`].
    pub(crate) fn remove(&self, payer: Payer, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut ledger = self.lock();
        let account = ledger.of(payer);
        account.used_bytes -= bytes;
        // One is left for the next file.
        let needed = account.used_bytes.div_ceil(CHUNK_BYTES) as usize + 1;
        let kept = needed.min(account.reserved.len());
        let unneeded = account.reserved.split_off(kept);
        drop(ledger);
        self.forgotten.notify_all();
        drop(unneeded);
    }

    /// Has the kernel forget files when there are too many, until [`Self::end`].
    pub(crate) fn limit(&self, nodes: &Nodes, files: &Files) {
        let channel = self.channel.get().expect("it is set before the mount is served");
        let mut seen = 0;
        let mut patience = 0;
        loop {
            let excesses: Vec<(Payer, u64)> = {
                let is_fine = |ledger: &mut Ledger| !ledger.ended && ledger.added <= seen + patience;
                let waited = self.changed.wait_while(self.lock(), is_fine);
                let mut ledger = waited.unwrap_or_else(PoisonError::into_inner);
                if ledger.ended {
                    return;
                }
                seen = ledger.added;
                let excess = |(number, account): (u32, &mut Account)| {
                    let short = std::mem::take(&mut account.is_short);
                    let max_bytes = if short { account.used_bytes } else { account.max_bytes };
                    let excess = account.used_bytes.saturating_sub(max_bytes - max_bytes / SHARE);
                    let is_over = short || account.used_bytes > max_bytes;
                    (is_over && excess > 0).then_some((Payer(number), excess))
                };
                (0..).zip(&mut ledger.accounts).filter_map(excess).collect()
            };
            if excesses.is_empty() {
                continue;
            }
            patience = PATIENCE;
            for (payer, excess_bytes) in excesses {
                let (victims, bytes) = nodes.unneeded(payer, excess_bytes, channel.prunes());
                if !victims.is_empty() {
                    patience = 0;
                }
                channel.forget(&victims);
                if bytes < excess_bytes {
                    // The kernel has forgotten the others. They are known because they are cached.
                    let count = (excess_bytes - bytes).div_ceil(crate::node::NODE_BYTES);
                    files.give_up_of(nodes, payer, count as usize);
                }
            }
        }
    }

    /// Ends [`Self::limit`].
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
        self.forgotten.notify_all();
    }
}

/// The number of the kernel's request `FUSE_NOTIFY_PRUNE`, since Linux 6.18: a header, the count of
/// nodes with 12 bytes of padding, and the nodes' numbers.
const PRUNE: u32 = 9;

impl Channel {
    fn device(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the kernel can forget nodes by number, unless a program uses them.
    fn prunes(&self) -> bool {
        self.device().is_some()
    }

    /// Asks the kernel to forget nodes. An error: the mount has ended, or the kernel has forgotten
    /// them already.
    fn forget(&self, victims: &[Victim]) {
        if victims.is_empty() {
            return;
        }
        let mut device = self.device();
        if let Some(open) = &*device {
            let ids: Vec<u8> = victims.iter().flat_map(|victim| victim.id.to_ne_bytes()).collect();
            let mut head = Vec::with_capacity(32);
            for word in [(32 + ids.len()) as u32, PRUNE, 0, 0, victims.len() as u32, 0, 0, 0] {
                head.extend_from_slice(&word.to_ne_bytes());
            }
            match rustix::io::writev(open, &[IoSlice::new(&head), IoSlice::new(&ids)]) {
                Err(Errno::INVAL) => *device = None,
                _ => return,
            }
        }
        for (parent, name) in
            victims.iter().filter(|victim| !victim.is_directory).flat_map(|victim| &victim.names)
        {
            let _ = self.notifier.inval_entry(INodeNo(*parent), name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mglru_cache::PageCache;

    /// The index of pages may grow while the cache looks for room.
    const INDEX_BYTES: u64 = 64 << 10;

    #[test]
    fn files_are_part_of_the_budget_until_they_are_removed() {
        let cache = PageCache::builder(2 << 20).build().unwrap();
        let known = Known::new(cache.tenant("").unwrap(), 2 << 20);
        let before = cache.stats().metadata_bytes;
        let charged = || cache.stats().metadata_bytes - before;
        for count in 1..=1000 {
            known.add(Payer::ROOT, 500).unwrap();
            assert!(
                (count * 500..=count * 500 + CHUNK_BYTES + INDEX_BYTES).contains(&charged()),
                "{}",
                charged()
            );
        }
        for count in (0..1000).rev() {
            known.remove(Payer::ROOT, 500);
            assert!(
                (count * 500..=count * 500 + 2 * CHUNK_BYTES + INDEX_BYTES).contains(&charged()),
                "{}",
                charged()
            );
        }
        // The budget is hard.
        let most = (0..).take_while(|_| known.add(Payer::ROOT, 500).is_ok()).count() as u64;
        assert!((1000..(2 << 20) / 500).contains(&most), "{most}");
        let stats = cache.stats();
        assert!(stats.frame_bytes + stats.metadata_bytes <= stats.budget_bytes, "{stats:?}");
        (0..most).for_each(|_| known.remove(Payer::ROOT, 500));
        assert!(charged() <= CHUNK_BYTES + INDEX_BYTES, "{}", charged());
    }
}
