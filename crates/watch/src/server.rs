//! The thread that serves clients.
//!
//! Tokio runs all connections on this one thread. A connection is closed after one answer, or when
//! its time is up, so that clients which send or read nothing cannot hold all connections.

use crate::address::Address;
use crate::answer::Answers;
use crate::error::Error;
use crate::listener::{self, Listener, SocketFile};
use crate::state::Watched;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Connections at once. Further clients wait to be accepted.
const CONNECTIONS_MAX: usize = 64;

/// How long a client may take for its request and its answer together.
const CONNECTION_TIME: Duration = Duration::from_secs(10);

/// Bytes of a request's head at most.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// The pause after a failure to accept, such as for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves the state of a cache until it is dropped.
///
/// It does not keep the cache: once that is gone, clients get status 503. While it answers, it
/// holds a reference for some microseconds. So drop the watch before you take the cache out of its
/// `Arc` to close it.
pub struct Watch {
    address: Address,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _file: Option<SocketFile>,
}

impl Watch {
    /// Starts to serve at an address. Port 0 is any free port. A Unix socket has mode 0600; a
    /// socket that a killed process left behind is replaced.
    ///
    /// # Errors
    /// The address is in use or not permitted, a file is in the way, or a thread cannot be started.
    pub fn start<W: Watched>(address: &Address, watched: &Arc<W>) -> Result<Watch, Error> {
        let cannot = |error: io::Error| Error::new(format_args!("cannot serve at {address}: {error}"));
        let (listener, at, file) = listener::open(address)?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let (stop, stopped) = oneshot::channel();
        let answers = Arc::new(Answers::new(Arc::<W>::downgrade(watched)));
        let serving = accept(runtime.handle(), listener).map_err(cannot)?;
        let thread = std::thread::Builder::new().name("mglru-watch".to_owned());
        let thread = thread.spawn(move || serve(&runtime, serving, stopped, answers)).map_err(cannot)?;
        Ok(Watch { address: at, stop: Some(stop), thread: Some(thread), _file: file })
    }

    /// Where it listens, with the port that the system chose for port 0.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported on stderr already.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A listener in the runtime.
enum Serving {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

fn accept(runtime: &tokio::runtime::Handle, listener: Listener) -> io::Result<Serving> {
    let _inside = runtime.enter();
    Ok(match listener {
        Listener::Tcp(listener) => Serving::Tcp(tokio::net::TcpListener::from_std(listener)?),
        Listener::Unix(listener) => Serving::Unix(tokio::net::UnixListener::from_std(listener)?),
    })
}

/// Serves until `stopped`. Connections that are open then are cut off.
fn serve(runtime: &Runtime, serving: Serving, stopped: oneshot::Receiver<()>, answers: Arc<Answers>) {
    runtime.spawn(async move {
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(permit) = connections.clone().acquire_owned().await else { return };
            let accepted = match &serving {
                Serving::Tcp(listener) => {
                    listener.accept().await.map(|(stream, _)| connection(stream, &answers, permit))
                }
                Serving::Unix(listener) => {
                    listener.accept().await.map(|(stream, _)| connection(stream, &answers, permit))
                }
            };
            if accepted.is_err() {
                tokio::time::sleep(PAUSE).await;
            }
        }
    });
    // An error says that the watch is gone, which is the same.
    let _ = runtime.block_on(stopped);
}

/// Serves one client.
fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    answers: &Arc<Answers>,
    permit: OwnedSemaphorePermit,
) {
    let answers = answers.clone();
    tokio::spawn(async move {
        let service = service_fn(|request: hyper::Request<_>| {
            let answer = answers.answer(request.method(), request.uri().path());
            async { Ok::<_, Infallible>(answer) }
        });
        let mut http = http1::Builder::new();
        http.keep_alive(false).header_read_timeout(None).max_buf_size(HEAD_BYTES_MAX);
        // A client that leaves, or sends something else than HTTP, is no concern of the cache.
        let _ =
            tokio::time::timeout(CONNECTION_TIME, http.serve_connection(TokioIo::new(stream), service)).await;
        drop(permit);
    });
}
