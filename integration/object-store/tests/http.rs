//! The wrapper over object_store's HTTP store and a server on this machine: bytes, ranges that are
//! read together, objects that change, and answers that are short, whole or errors.

mod common;

use async_trait::async_trait;
use bytes::Bytes;
use common::content;
use futures_util::future::join_all;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_RANGE, ETAG, HOST, IF_MATCH, LAST_MODIFIED, RANGE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use mglru_cache::PageCache;
use mglru_object_store::{CachedStore, Options};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use object_store::http::{HttpBuilder, HttpStore};
use object_store::path::Path;
use object_store::{ClientOptions, Error, ObjectStore, ObjectStoreExt, RetryConfig};
use std::convert::Infallible;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// A defect of the answers of the server to reads.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Half of the bytes of the range that the header names.
    Short,
    /// The header names fewer bytes than were asked for.
    OtherRange,
    /// The whole object.
    Whole,
    Status(StatusCode),
    /// No fault: the etag is a weak one.
    WeakTag,
}

/// A server of one object, `/o`.
struct Server {
    object: Mutex<(Vec<u8>, u64)>,
    fault: Mutex<Fault>,
    /// The ranges asked for.
    reads: Mutex<Vec<Range<usize>>>,
    heads: Mutex<usize>,
}

impl Server {
    async fn start(object: Vec<u8>) -> (Arc<Server>, HttpStore) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Arc::new(Server {
            object: Mutex::new((object, 1)),
            fault: Mutex::new(Fault::None),
            reads: Mutex::default(),
            heads: Mutex::default(),
        });
        let accept = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = accept.clone();
                let answer = service_fn(move |request| {
                    let response = server.answer(&request);
                    async { Ok::<_, Infallible>(response) }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer),
                );
            }
        });
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let store = HttpBuilder::new().with_url(url).with_retry(retry).with_http_connector(Connector);
        (server, store.build().unwrap())
    }

    fn set(&self, object: Vec<u8>) {
        let mut now = self.object.lock().unwrap();
        *now = (object, now.1 + 1);
    }

    fn reads(&self) -> Vec<Range<usize>> {
        std::mem::take(&mut self.reads.lock().unwrap())
    }

    fn answer(&self, request: &Request<hyper::body::Incoming>) -> Response<Full<Bytes>> {
        let status = |status| Response::builder().status(status).body(Full::default()).unwrap();
        if request.uri().path() != "/o" {
            return status(StatusCode::NOT_FOUND);
        }
        let (object, version) = self.object.lock().unwrap().clone();
        let fault = *self.fault.lock().unwrap();
        let is_weak = fault == Fault::WeakTag;
        let etag = format!("{}\"v{version}\"", if is_weak { "W/" } else { "" });
        let header = |name| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        if header(IF_MATCH).is_some_and(|wanted| is_weak || wanted != etag) {
            return status(StatusCode::PRECONDITION_FAILED);
        }
        let answer =
            Response::builder().header(ETAG, etag).header(LAST_MODIFIED, "Wed, 25 Nov 2026 00:00:00 GMT");
        let Some(range) = header(RANGE) else {
            assert_eq!(request.method(), Method::HEAD);
            *self.heads.lock().unwrap() += 1;
            let answer = answer.header("content-length", object.len());
            return answer.body(Full::default()).unwrap();
        };
        let (start, end) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
        let range = start.parse().unwrap()..object.len().min(end.parse::<usize>().unwrap() + 1);
        self.reads.lock().unwrap().push(range.clone());
        let named = if fault == Fault::OtherRange { range.start..range.end - 1000 } else { range };
        let bytes = object[named.clone()].to_vec();
        let part = answer
            .status(StatusCode::PARTIAL_CONTENT)
            .header(CONTENT_RANGE, format!("bytes {}-{}/{}", named.start, named.end - 1, object.len()));
        match fault {
            Fault::None | Fault::OtherRange | Fault::WeakTag => part.body(Full::new(bytes.into())).unwrap(),
            // The length of the body contradicts the range that the header names.
            Fault::Short => part.body(Full::new(bytes[..bytes.len() / 2].to_vec().into())).unwrap(),
            Fault::Whole => Response::new(Full::new(object.into())),
            Fault::Status(code) => status(code),
        }
    }
}

/// A client without TLS, with a connection for each request.
#[derive(Debug)]
struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Connector))
    }
}

#[async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let connect = |error| HttpError::new(HttpErrorKind::Connect, error);
        let failed = |error| HttpError::new(HttpErrorKind::Request, error);
        let (mut parts, body) = request.into_parts();
        let host = parts.uri.authority().unwrap().to_string();
        let stream = TcpStream::connect(&host).await.map_err(connect)?;
        parts.headers.insert(HOST, host.parse().unwrap());
        parts.uri = parts.uri.path().parse::<Uri>().unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        tokio::spawn(connection);
        let response = sender.send_request(Request::from_parts(parts, body)).await.map_err(failed)?;
        Ok(response.map(|body| HttpResponseBody::new(body.map_err(failed))))
    }
}

fn cached(store: HttpStore, fresh_for: Duration) -> (PageCache, CachedStore) {
    let cache = PageCache::builder(16 << 20).tenant("web", 8 << 20).build().unwrap();
    let mut options = Options::default();
    (options.block_bytes, options.fresh_for) = (64 << 10, fresh_for);
    let store = CachedStore::with_options(Arc::new(store), cache.tenant("web").unwrap(), options);
    (cache, store)
}

const FOREVER: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_are_right_and_neighbours_are_read_together() {
    let all = content(1, 3_000_000);
    let (server, store) = Server::start(all.clone()).await;
    let (_cache, store) = cached(store, FOREVER);
    let path = Path::from("o");
    // Three ranges in blocks with small gaps: one request. Their blocks are whole.
    let ranges = [1000..2000u64, 70_000..140_000, 300_000..300_001];
    for _ in 0..2 {
        for (got, range) in store.get_ranges(&path, &ranges).await.unwrap().iter().zip(&ranges) {
            assert!(*got == all[range.start as usize..range.end as usize], "{range:?}");
        }
    }
    let reads = server.reads();
    let bytes: usize = reads.iter().map(|read| read.len()).sum();
    assert!(reads.iter().all(|read| read.start.is_multiple_of(64 << 10)), "{reads:?}");
    assert!(reads.len() <= 3 && bytes <= 5 << 16, "{reads:?}");
    // Readers of the same bytes.
    let read = |at: u64| store.get_range(&path, 1_000_000 + at * 100..1_000_000 + at * 100 + 50);
    for (at, got) in join_all((0..16).map(read)).await.into_iter().enumerate() {
        assert!(got.unwrap() == all[1_000_000 + at * 100..1_000_000 + at * 100 + 50]);
    }
    // They are in one block. Two of them may have asked for a part of it each.
    let again = server.reads();
    assert!(again.len() <= 2 && again.iter().map(|read| read.len()).sum::<usize>() == 64 << 10, "{again:?}");
    assert!(store.get(&path).await.unwrap().bytes().await.unwrap() == all);
    // Blocks in memory were not read again, but for gaps between ranges that were read together.
    let bytes = bytes + (64 << 10) + server.reads().iter().map(|read| read.len()).sum::<usize>();
    assert!((all.len()..=all.len() + (4 << 16)).contains(&bytes), "{bytes}");
    assert_eq!(*server.heads.lock().unwrap(), 1);
    let missing = store.get_range(&Path::from("missing"), 0..10).await;
    assert!(matches!(missing, Err(Error::NotFound { .. })), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_etag_is_another_object() {
    let (old, new) = (content(1, 900_000), content(2, 800_000));
    let (server, store) = Server::start(old.clone()).await;
    let (_cache, store) = cached(store, FOREVER);
    let path = Path::from("o");
    assert!(store.get_range(&path, 0..1000).await.unwrap() == old[..1000]);
    server.set(new.clone());
    // In memory, and believed. A read of the server is conditional on the etag, and finds another.
    assert!(store.get_range(&path, 0..1000).await.unwrap() == old[..1000]);
    let result = store.get(&path).await.unwrap();
    assert_eq!(result.meta.e_tag.as_deref(), Some("\"v2\""));
    assert!(result.bytes().await.unwrap() == new);
    assert!(store.get_range(&path, 0..1000).await.unwrap() == new[..1000]);
}

/// Reads of several parts are under way when the object changes: all are refused, and the object is
/// opened again once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_changes_is_opened_once_more() {
    let all = [1, 2, 3].map(|seed| content(seed, 3_000_000));
    let (server, store) = Server::start(all[0].clone()).await;
    let (_cache, store) = cached(store, FOREVER);
    let path = Path::from("o");
    assert!(store.get_range(&path, 0..1000).await.unwrap() == all[0][..1000]);
    server.set(all[1].clone());
    let range = 1_000_000..1_500_000;
    assert!(store.get_range(&path, 1_000_000..1_500_000).await.unwrap() == all[1][range]);
    assert_eq!(*server.heads.lock().unwrap(), 2);
    // Old streams end.
    let streams = [store.get(&path).await.unwrap(), store.get(&path).await.unwrap()];
    server.set(all[2].clone());
    for stream in streams {
        let error = stream.bytes().await.unwrap_err();
        assert!(
            error.to_string().contains("precondition") || error.to_string().contains("changed"),
            "{error}"
        );
    }
    // The version of the second time, again, with handles of it still open.
    let open = store.get(&path).await.unwrap();
    server.set(all[0].clone());
    assert!(open.bytes().await.is_err());
    *server.object.lock().unwrap() = (all[2].clone(), 3);
    assert!(store.get(&path).await.unwrap().bytes().await.unwrap() == all[2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_false_answer_is_an_error_and_later_reads_are_right() {
    let all = content(3, 900_000);
    let (server, store) = Server::start(all.clone()).await;
    let (cache, store) = cached(store, FOREVER);
    let path = Path::from("o");
    let faults = [
        Fault::Short,
        Fault::OtherRange,
        Fault::Whole,
        Fault::Status(StatusCode::INTERNAL_SERVER_ERROR),
        Fault::Status(StatusCode::FORBIDDEN),
        Fault::Status(StatusCode::NOT_FOUND),
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let range = number as u64 * 131_072..number as u64 * 131_072 + 100_000;
        let wanted = &all[range.start as usize..range.end as usize];
        *server.fault.lock().unwrap() = fault;
        for _ in 0..2 {
            match store.get_range(&path, range.clone()).await {
                Ok(bytes) => panic!("{fault:?}: {} bytes, right: {}", bytes.len(), bytes == wanted),
                Err(Error::NotFound { .. }) => assert_eq!(fault, Fault::Status(StatusCode::NOT_FOUND)),
                Err(_) => {}
            }
        }
        *server.fault.lock().unwrap() = Fault::None;
        assert!(store.get_range(&path, range).await.unwrap() == wanted, "{fault:?}");
    }
    assert!(store.get(&path).await.unwrap().bytes().await.unwrap() == all);
    cache.validate().unwrap();
}

/// A weak etag matches nothing (RFC 9110), so reads are not conditional on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_with_a_weak_etag_are_cached() {
    let (old, new) = (content(1, 900_000), content(2, 800_000));
    let (server, store) = Server::start(old.clone()).await;
    *server.fault.lock().unwrap() = Fault::WeakTag;
    let (_cache, store) = cached(store, FOREVER);
    let path = Path::from("o");
    for _ in 0..3 {
        assert!(store.get_range(&path, 1000..2000).await.unwrap() == old[1000..2000]);
    }
    assert_eq!(server.reads().len(), 1);
    server.set(new.clone());
    let result = store.get(&path).await.unwrap();
    assert_eq!(result.meta.e_tag.as_deref(), Some("W/\"v2\""));
    assert!(result.bytes().await.unwrap() == new);
}
