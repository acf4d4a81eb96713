//! The answer to each request.

use crate::state::Watched;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Response, StatusCode};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The page with charts.
const PAGE: &str = include_str!("page.html");

/// The page loads the state alone, from this server.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Texts of one kind at most that clients have yet to read. One of 1,000 tenants has 3.3 MB.
const UNREAD_MAX: usize = 4;

/// Texts of one kind that clients have yet to read.
///
/// They are not in the budget of the cache, and clients may read slowly or not at all. So if there
/// are [`UNREAD_MAX`], further clients get the newest of them. It may be as old as a connection.
#[derive(Default)]
struct Unread(Mutex<Vec<Weak<Text>>>);

struct Text(String);

/// A client's part in a text.
struct Share(Arc<Text>);

impl AsRef<[u8]> for Share {
    fn as_ref(&self) -> &[u8] {
        self.0.0.as_bytes()
    }
}

impl Unread {
    fn text(&self, make: impl FnOnce() -> String) -> Bytes {
        let mut unread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        unread.retain(|text| text.strong_count() > 0);
        let newest = unread.last().filter(|_| unread.len() >= UNREAD_MAX).and_then(Weak::upgrade);
        let text = newest.unwrap_or_else(|| {
            let text = Arc::new(Text(make()));
            unread.push(Arc::downgrade(&text));
            text
        });
        Bytes::from_owner(Share(text))
    }
}

/// The answers of a watch.
pub(crate) struct Answers {
    watched: Weak<dyn Watched>,
    states: Unread,
    metrics: Unread,
}

impl Answers {
    pub(crate) fn new(watched: Weak<dyn Watched>) -> Answers {
        Answers { watched, states: Unread::default(), metrics: Unread::default() }
    }

    /// Answers a request for a path.
    pub(crate) fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if method != Method::GET && method != Method::HEAD {
            let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n");
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        let content = |kind, unread: &Unread, text: fn(&dyn Watched) -> String| match self.watched.upgrade() {
            Some(watched) => response(StatusCode::OK, kind, unread.text(|| text(&*watched))),
            None => response(StatusCode::SERVICE_UNAVAILABLE, TEXT, "the cache is closed\n"),
        };
        match path {
            "/" => response(StatusCode::OK, HTML, PAGE),
            "/state.json" => content(JSON, &self.states, |watched| watched.state().to_json()),
            "/metrics" => content(PROMETHEUS, &self.metrics, |watched| watched.metrics()),
            _ => {
                let known = "there are / (a page with charts), /state.json and /metrics\n";
                response(StatusCode::NOT_FOUND, TEXT, known)
            }
        }
    }
}

fn response(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}
