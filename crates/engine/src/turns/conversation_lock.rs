//! Conversation lock of a turn: the store's lock, held until the agent has stopped.

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::{
    agents::runtime::AgentRuntime,
    core::Core,
    store::{Conversation, MemberId, StoreError},
};

/// The store's lock on one conversation, which the claim of a turn has taken. Dropping it unlocks the
/// conversation and then wakes the dispatcher, which may begin the next turn.
#[derive(Debug)]
pub(crate) struct ConversationLock {
    core: Arc<Core>,
    runtime: Arc<AgentRuntime>,
    conversation: Conversation,
    holder: MemberId,
}

impl ConversationLock {
    pub(crate) fn new(
        core: &Arc<Core>,
        runtime: &Arc<AgentRuntime>,
        conversation: Conversation,
        holder: MemberId,
    ) -> Self {
        Self { core: Arc::clone(core), runtime: Arc::clone(runtime), conversation, holder }
    }
}

impl Drop for ConversationLock {
    fn drop(&mut self) {
        // Without a runtime the process ends, and its locks with it.
        if Handle::try_current().is_err() {
            return;
        }
        let (core, runtime) = (Arc::clone(&self.core), Arc::clone(&self.runtime));
        let (conversation, me) = (self.conversation.clone(), self.holder);
        self.core.work.spawn(async move {
            let name = &runtime.profile.name;
            let unlock = || core.store.unlock_conversation(name, &conversation, me);
            let is_unavailable = |error: &_| matches!(error, StoreError::Unavailable(_));
            if let Err(error) = core.retry_while_unavailable(unlock, is_unavailable).await {
                tracing::warn!(agent = %name, %error, "a conversation stays locked until the next start");
            }
            runtime.wake_for(&conversation.owner.tenant);
        });
    }
}
