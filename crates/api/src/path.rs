//! Paths of `/api`: from a path to its route, and from a route to its path.

use std::borrow::Cow;

use herald_protocol::percent;
use serde::Serialize;

use crate::{query, routes::ApiRoute};

/// The reason why no route matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteMiss {
    /// There is no such path.
    NotFound,
    /// The path has other methods: the value of the `Allow` header.
    MethodNotAllowed(String),
}

impl ApiRoute {
    /// The route of a request and the parameters in its path, in order. The path is still
    /// percent-encoded.
    pub fn find(method: &str, path: &str) -> Result<(Self, Vec<String>), RouteMiss> {
        let path = without_version(path).ok_or(RouteMiss::NotFound)?;
        let matches = Self::ALL.iter().filter_map(|route| {
            parameters(below(route.path())?, path).map(|parameters| (*route, parameters))
        });
        let mut matches: Vec<_> = matches.collect();
        // Several methods of one path match together; another path with the same form does not count.
        let template = matches.first().ok_or(RouteMiss::NotFound)?.0.path();
        matches.retain(|(route, _)| route.path() == template);
        match matches.iter().position(|(route, _)| route.method() == method) {
            Some(found) => Ok(matches.swap_remove(found)),
            None => {
                let methods: Vec<_> = matches.iter().map(|(route, _)| route.method()).collect();
                Err(RouteMiss::MethodNotAllowed(methods.join(", ")))
            }
        }
    }

    /// The path and the query of a request, with these parameters in its path.
    ///
    /// # Panics
    ///
    /// If the number of parameters is not that of the route.
    pub fn target(self, parameters: &[&str], query: &impl Serialize) -> String {
        let mut target = String::new();
        let mut given = parameters.iter();
        let mut template = self.path();
        while let Some((before, rest)) = template.split_once('{') {
            target.push_str(before);
            let value = given.next().expect("a value for each parameter of the path");
            percent::encode(&mut target, value);
            template = rest.split_once('}').expect("every brace of a path is closed").1;
        }
        assert!(given.next().is_none(), "{} has fewer parameters", self.path());
        target.push_str(template);
        let query = query::write(query);
        if !query.is_empty() {
            target.push('?');
            target.push_str(&query);
        }
        target
    }
}

/// The path below `/api` or `/api/v1`, which are the same.
fn without_version(path: &str) -> Option<&str> {
    let below_api = below(path)?;
    let versionless = below_api.strip_prefix("/v1").filter(|rest| is_below(rest));
    let path = versionless.unwrap_or(below_api);
    Some(path.strip_suffix('/').unwrap_or(path))
}

fn below(path: &str) -> Option<&str> {
    path.strip_prefix("/api").filter(|rest| is_below(rest))
}

fn is_below(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

/// The parameters of a path that has the form of the template.
fn parameters(template: &str, path: &str) -> Option<Vec<String>> {
    let mut found = Vec::new();
    let mut given = path.split('/');
    for expected in template.split('/') {
        let given = given.next()?;
        match expected.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            Some((_, verb)) => {
                // An escaped colon belongs to the id, so the verb is removed before decoding.
                let value =
                    percent::decode(given.strip_suffix(verb)?).filter(|it| !it.is_empty())?;
                found.push(Cow::into_owned(value));
            }
            None if given == expected => {}
            None => return None,
        }
    }
    given.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::Nothing;

    #[test]
    fn every_route_is_found_by_the_path_that_a_client_writes() {
        for route in ApiRoute::ALL {
            let count = route.path().matches('{').count();
            let given = &["täsk/1:x", "a b", "0"][..count];
            let target = route.target(given, &Nothing {});
            assert_eq!(
                ApiRoute::find(route.method(), &target),
                Ok((*route, given.iter().map(|one| (*one).to_owned()).collect())),
                "{target}"
            );
            let versioned = target.replacen("/api", "/api/v1", 1);
            assert_eq!(ApiRoute::find(route.method(), &versioned).map(|found| found.0), Ok(*route));
            let Err(RouteMiss::MethodNotAllowed(allow)) = ApiRoute::find("PATCH", &target) else {
                panic!("{target} allows PATCH");
            };
            assert!(allow.contains(route.method()), "{allow}");
        }
    }

    #[test]
    fn other_paths_and_versions_do_not_exist() {
        for path in [
            "/api/v2",
            "/api/v2/tasks",
            "/api/v1x",
            "/apis",
            "/api//tasks",
            "/api/tasks/",
            "/api/workers",
        ] {
            let found = ApiRoute::find("GET", path);
            if path == "/api/tasks/" {
                assert_eq!(found.map(|found| found.0), Ok(ApiRoute::ListTasks));
            } else {
                assert_eq!(found, Err(RouteMiss::NotFound), "{path}");
            }
        }
        assert_eq!(
            ApiRoute::find("PUT", "/api/keys"),
            Err(RouteMiss::MethodNotAllowed("GET, POST".to_owned()))
        );
        assert_eq!(
            ApiRoute::find("GET", "/api/tasks/%3Aanswer").map(|found| found.0),
            Ok(ApiRoute::GetTask)
        );
    }
}
