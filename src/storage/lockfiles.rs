//! Liveness on SQLite: all processes are on one machine, so a process is alive as long as it holds a file's
//! lock. The kernel lets go of it however the process ends, and nothing has to wait for a lease.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::entry::InstanceId;

/// The directory of lock files beside a database file.
#[derive(Debug)]
pub(super) struct LockFiles {
    directory: PathBuf,
    /// The locks that this process holds.
    held: Mutex<HashMap<InstanceId, File>>,
}

impl LockFiles {
    pub(super) fn beside(database: &Path) -> Self {
        let mut directory = database.as_os_str().to_owned();
        directory.push(".instances");
        Self { directory: directory.into(), held: Mutex::default() }
    }

    /// Takes `id`'s lock until [`Self::let_go`] or the end of the process. Before the instance's row exists:
    /// a row without a lock is a dead instance's.
    pub(super) fn hold(&self, id: InstanceId) -> io::Result<()> {
        std::fs::create_dir_all(&self.directory)?;
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(self.path(id))?;
        file.try_lock().map_err(io::Error::from)?;
        self.held().insert(id, file);
        Ok(())
    }

    /// Whether no process holds `id`'s lock. A file that is gone is nobody's: the database came from another
    /// machine.
    pub(super) fn is_free(&self, id: InstanceId) -> io::Result<bool> {
        let file = match File::open(self.path(id)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(error),
        };
        // Shared, so that two who look at once do not take each other for the owner.
        match file.try_lock_shared() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Lets `id`'s lock go.
    pub(super) fn let_go(&self, id: InstanceId) {
        self.held().remove(&id);
    }

    /// Removes the file of an instance that is gone.
    pub(super) fn remove(&self, id: InstanceId) -> io::Result<()> {
        match std::fs::remove_file(self.path(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Waits for the one lock that migrations take: SQLite has none for them. Held until dropped.
    pub(super) fn lock_migrations(&self) -> io::Result<File> {
        std::fs::create_dir_all(&self.directory)?;
        let path = self.directory.join("migrations.lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        file.lock()?;
        Ok(file)
    }

    fn path(&self, id: InstanceId) -> PathBuf {
        self.directory.join(format!("{id}.lock"))
    }

    fn held(&self) -> std::sync::MutexGuard<'_, HashMap<InstanceId, File>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
