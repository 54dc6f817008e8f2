//! Agents that forward messages to remote agents, which were registered by their card.

use std::sync::Arc;

use bytes::Bytes;
use herald_agents::Upstream;
use herald_client::Client;
use herald_engine::{Agent, Profile};
use herald_protocol::{AgentCard, AgentName, Error, ErrorKind};
use herald_server::{HttpSender, RemoteAgentFactory};
use http::Request;
use http_body_util::{BodyExt, Full};

/// Maker of agents of the kind `a2a` for registered cards.
#[derive(Debug)]
pub(crate) struct Upstreams;

impl RemoteAgentFactory for Upstreams {
    fn build(
        &self,
        name: &AgentName,
        card: &AgentCard,
        http: &Arc<HttpSender>,
    ) -> Result<(Profile, Arc<dyn Agent>), Error> {
        let http = Arc::clone(http);
        let service = tower::service_fn(move |request: Request<Full<Bytes>>| {
            let http = Arc::clone(&http);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                http.request(Request::from_parts(parts, body)).await
            }
        });
        let builder = Client::builder().service(service);
        // A card that cannot be called is refused here, not with the first message.
        let unusable = |error: herald_client::Error| {
            let text = format!("the agent of this card cannot be called: {error}");
            Error::new(ErrorKind::InvalidParams, text)
        };
        builder.clone().card(card.clone()).map_err(unusable)?;
        let url = card.supported_interfaces.first().map(|interface| interface.url.clone());
        let mut upstream = Upstream::new(name.as_str(), url.unwrap_or_default(), builder);
        upstream.card = Some(card.clone());
        let profile = upstream.profile();
        Ok((profile, Arc::new(upstream)))
    }
}
