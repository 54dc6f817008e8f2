//! Download of one part of an artifact.

use herald_api::tasks::TaskOwnerQuery;
use herald_protocol::{Content, Error, ErrorKind, Part};
use http::Response;

use super::ApiRequest;
use crate::{body::Body, browser};

pub(super) async fn get(
    request: &ApiRequest<'_>,
    owner: TaskOwnerQuery,
) -> Result<Response<Body>, Error> {
    let key = request.task_key(owner).await?;
    let (_, task) = request.operator().task(&key).await?;
    let (artifact, number) = (request.parameter(1), request.parameter(2).parse::<usize>());
    let mut artifacts = task.artifacts.iter().flatten();
    let artifact = artifacts.find(|one| one.artifact_id.as_str() == artifact);
    let part = artifact.zip(number.ok()).and_then(|(artifact, at)| artifact.parts.get(at));
    let part = part.ok_or_else(|| {
        Error::new(ErrorKind::ResourceNotFound, "the task has no such artifact or part")
    })?;
    let (bytes, usual) = content(part)?;
    let bytes = request.exchange.hold(bytes, &request.caller)?;
    let media_type = part.media_type.as_deref().unwrap_or(usual);
    Ok(browser::download(bytes, media_type, part.filename.as_deref().unwrap_or_default()))
}

/// The bytes of a part and their usual media type.
fn content(part: &Part) -> Result<(Vec<u8>, &'static str), Error> {
    match &part.content {
        Content::Text(text) => Ok((text.clone().into_bytes(), "text/plain")),
        Content::Raw(bytes) => Ok((bytes.clone(), "application/octet-stream")),
        Content::Data(data) => Ok((data.as_str().as_bytes().to_vec(), "application/json")),
        Content::Url(url) => {
            let text =
                "the part is a link, which the server does not follow: fetch it from its URL";
            Err(Error::new(ErrorKind::UnsupportedOperation, text).with("url", url))
        }
    }
}
