//! The answer to each request.

use crate::state::Watched;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Response, StatusCode};
use std::sync::Weak;

/// The page with charts.
const PAGE: &str = include_str!("page.html");

/// The page loads the state alone, from this server.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers a request for a path.
pub(crate) fn answer(method: &Method, path: &str, watched: &Weak<dyn Watched>) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD\n".to_owned());
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    let content = |kind, text: fn(&dyn Watched) -> String| match watched.upgrade() {
        Some(watched) => response(StatusCode::OK, kind, text(&*watched)),
        None => response(StatusCode::SERVICE_UNAVAILABLE, TEXT, "the cache is closed\n".to_owned()),
    };
    match path {
        "/" => response(StatusCode::OK, HTML, PAGE.to_owned()),
        "/state.json" => content(JSON, |watched| watched.state().to_json()),
        "/metrics" => content(PROMETHEUS, |watched| watched.metrics()),
        _ => {
            let known = "there are / (a page with charts), /state.json and /metrics\n";
            response(StatusCode::NOT_FOUND, TEXT, known.to_owned())
        }
    }
}

fn response(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}
