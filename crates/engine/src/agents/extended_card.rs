//! Extended card of an agent for one caller.

use herald_protocol::{Error, ErrorKind, card::AgentInterface};

use crate::{
    agents::profile::{Audience, Profile},
    caller::Caller,
};

/// The description of an agent for one authenticated caller.
#[derive(Debug, Clone, PartialEq)]
pub struct CallerProfile {
    /// The profile, with the skills and the description that the caller gets.
    pub profile: Profile,
    /// Further interfaces.
    pub interfaces: Vec<AgentInterface>,
}

impl Audience {
    fn includes(&self, caller: &Caller) -> bool {
        let identity = caller.identity();
        let (tenant, principal) = (&identity.owner.tenant, &*identity.owner.principal);
        identity.scopes.contains(self.scopes)
            && self.tenants.as_ref().is_none_or(|tenants| tenants.contains(tenant))
            && self.principals.as_ref().is_none_or(|some| some.iter().any(|one| one == principal))
    }
}

impl Profile {
    /// The extended description of the agent for a caller.
    pub(crate) fn for_caller(&self, caller: &Caller) -> Result<CallerProfile, Error> {
        let Some(extended) = &self.extended_card else {
            let text = "this agent has no extended card";
            return Err(Error::new(ErrorKind::UnsupportedOperation, text));
        };
        if caller.is_anonymous() {
            let text = "the extended card is for authenticated callers: send credentials";
            return Err(Error::new(ErrorKind::Unauthenticated, text));
        }
        let skills = seen_by(caller, &extended.skills);
        let interfaces = seen_by(caller, &extended.interfaces);
        if extended.description.is_none() && skills.is_empty() && interfaces.is_empty() {
            let text = "no extended card is configured for these credentials";
            return Err(Error::new(ErrorKind::ExtendedAgentCardNotConfigured, text));
        }
        let mut profile = self.clone();
        profile.skills.retain(|known| !skills.iter().any(|skill| skill.id == known.id));
        profile.skills.extend(skills);
        if let Some(allowed) = &caller.identity().skills {
            profile.skills.retain(|skill| allowed.contains(&skill.id));
        }
        if let Some(description) = &extended.description {
            profile.description.clone_from(description);
        }
        Ok(CallerProfile { profile, interfaces })
    }
}

fn seen_by<T: Clone>(caller: &Caller, entries: &[(T, Audience)]) -> Vec<T> {
    let seen = entries.iter().filter(|(_, audience)| audience.includes(caller));
    seen.map(|(entry, _)| entry.clone()).collect()
}
