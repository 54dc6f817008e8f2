//! Claude Code: JSON lines both ways. What it may not do unasked, it asks for in the same lines.

mod end;
mod request;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::failure::Failure;

use self::{
    end::{Outcome, State, Task, Work},
    request::{Permission, Request, Response},
};
use super::dialect::{Approval, Ask, Choice, Dialect, Event, Image, Talk, json, plain};

/// One conversation with Claude Code.
#[derive(Debug)]
pub(crate) struct Claude {
    ask: Ask,
    is_begun: bool,
    /// Whether something of the answer has been told.
    has_told: bool,
    /// What has been told of the block of text that is being written.
    block: String,
    /// What it waits for. The caller has been asked the first.
    requests: VecDeque<Request>,
    /// How far the work is.
    work: Work,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    System(System),
    StreamEvent {
        event: Piece,
        /// The tool that is an agent of its own, and said this.
        parent_tool_use_id: Option<String>,
    },
    Assistant {
        message: Message,
        parent_tool_use_id: Option<String>,
        /// Its own words for why there are none of the model; the result has them, too.
        error: Option<Value>,
    },
    User {
        message: Message,
    },
    ControlRequest {
        request_id: String,
        request: Control,
    },
    Result(Outcome),
    #[serde(other)]
    Other,
}

/// What it says about itself. Nothing here is worth a turn that fails because it is said in another way
/// one day.
#[derive(Deserialize)]
#[serde(tag = "subtype", rename_all = "snake_case")]
enum System {
    Init {
        model: Option<String>,
        session_id: Option<String>,
        /// The agents that it has, one of which works.
        agents: Option<Value>,
    },
    ApiRetry {
        attempt: Option<Value>,
        max_retries: Option<Value>,
    },
    SessionStateChanged {
        state: Option<Value>,
    },
    BackgroundTasksChanged {
        tasks: Option<Value>,
    },
    TaskStarted(Value),
    TaskNotification {
        task_id: Option<Value>,
    },
    #[serde(other)]
    Other,
}

/// A piece of what the model writes.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Piece {
    ContentBlockStart,
    ContentBlockDelta {
        delta: Delta,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Delta {
    TextDelta {
        text: String,
    },
    #[serde(other)]
    Other,
}

/// What somebody said. Cursor, which speaks a language much like this one, has the same.
#[derive(Deserialize)]
pub(super) struct Message {
    content: Content,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    Text(String),
    Blocks(Vec<Block>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block {
    Text {
        text: String,
    },
    ToolUse {
        name: String,
    },
    ToolResult {
        content: Option<Content>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "subtype", rename_all = "snake_case")]
enum Control {
    CanUseTool(Permission),
    #[serde(other)]
    Other,
}

/// What it is told.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Told<'a> {
    User { message: Prompt<'a> },
    ControlRequest { request_id: &'a str, request: Demand },
    ControlResponse { response: Response },
}

#[derive(Serialize)]
struct Prompt<'a> {
    role: &'a str,
    content: Vec<Shown<'a>>,
}

/// A piece of a message to it.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Shown<'a> {
    Text { text: &'a str },
    Image { source: Source<'a> },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Source<'a> {
    Base64 { media_type: &'a str, data: &'a str },
}

#[derive(Serialize)]
#[serde(tag = "subtype", rename_all = "snake_case")]
enum Demand {
    Interrupt,
}

impl Claude {
    pub(crate) fn new(ask: Ask) -> Self {
        let (block, requests, work) = (String::new(), VecDeque::new(), Work::default());
        Self { ask, is_begun: false, has_told: false, block, requests, work }
    }

    /// Tells more of a block of text. Blocks are paragraphs of the answer.
    fn tell(&mut self, text: &str, talk: &mut Talk) {
        if text.is_empty() {
            return;
        }
        let gap = if self.has_told && self.block.is_empty() { "\n\n" } else { "" };
        talk.event(Event::Text(format!("{gap}{text}")));
        self.has_told = true;
        self.block.push_str(text);
    }

    /// It begins: with every message and every answer, but in one session.
    fn begin(
        &mut self,
        model: Option<String>,
        session: Option<String>,
        agents: Option<Vec<&str>>,
        talk: &mut Talk,
    ) -> Result<(), Failure> {
        if std::mem::replace(&mut self.is_begun, true) {
            return Ok(());
        }
        // It goes on as another one if it does not have the agent that it should be.
        if let (Some(wanted), Some(agents)) = (&self.ask.profile, agents)
            && !agents.contains(&wanted.as_str())
        {
            let known = format!("it has {}", agents.join(", "));
            return Err(Failure::because(format!("has no agent `{wanted}` of its own"), known));
        }
        talk.event(Event::Init { model, session });
        Ok(())
    }

    /// A block is there as a whole. Usually all of it has been told piece by piece.
    fn close_block(&mut self, text: &str, talk: &mut Talk) {
        match after(&self.block, text) {
            Some(rest) => self.tell(&rest, talk),
            None => {
                // It was begun anew, as happens when the connection to the model breaks.
                self.block.clear();
                self.tell(text, talk);
            }
        }
        self.block.clear();
    }

    /// Tells what came of the work. After its end there is nothing more to read.
    fn conclude(&mut self, event: Option<Event>, talk: &mut Talk) {
        let Some(event) = event else { return };
        if !matches!(event, Event::Background(_)) {
            talk.close();
        }
        talk.event(event);
    }

    fn ask_caller(&self, talk: &mut Talk) {
        if let Some(request) = self.requests.front() {
            talk.event(Event::Approval(request.approval()));
        }
    }
}

impl Dialect for Claude {
    fn arguments(&self) -> Vec<String> {
        // Its own flag for skipping permissions is refused to root. So it always asks, and who may do
        // everything is always told yes.
        let fixed = "-p --verbose --input-format=stream-json --output-format=stream-json \
                     --include-partial-messages --permission-prompt-tool=stdio";
        let fixed = fixed.split_ascii_whitespace().map(str::to_owned);
        let Ask { model, profile, session, .. } = &self.ask;
        let chosen = [("model", model), ("agent", profile), ("resume", session)];
        let chosen = chosen.into_iter().filter_map(|(flag, value)| Some((flag, value.as_ref()?)));
        fixed.chain(chosen.map(|(flag, value)| format!("--{flag}={value}"))).collect()
    }

    fn variables(&self) -> &'static [(&'static str, &'static str)] {
        const STATE: (&str, &str) = ("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1");
        // A message that says `@/etc/passwd` would have it read, wherever that is and unasked.
        const UNATTACHED: (&str, &str) = ("CLAUDE_CODE_DISABLE_ATTACHMENTS", "1");
        if self.ask.force { &[STATE] } else { &[STATE, UNATTACHED] }
    }

    fn open(&mut self, talk: &mut Talk) {
        let text = plain(&self.ask.text);
        let images = self.ask.images.iter().map(|image| {
            let Image { media_type, data, .. } = image;
            Shown::Image { source: Source::Base64 { media_type, data } }
        });
        let content = [Shown::Text { text: &text }].into_iter().chain(images).collect();
        Told::User { message: Prompt { role: "user", content } }.say(talk);
    }

    fn hear(&mut self, line: &str, talk: &mut Talk) -> Result<(), Failure> {
        let Some(line) = json(line)? else { return Ok(()) };
        match line {
            Line::System(System::Init { model, session_id, agents }) => {
                let agents = agents.as_ref().and_then(Value::as_array);
                let names = agents.and_then(|all| all.iter().map(Value::as_str).collect());
                self.work.begin();
                self.begin(model, session_id, names, talk)?;
            }
            Line::System(System::SessionStateChanged { state }) => {
                let state = state.and_then(known::<State>);
                let event = state.and_then(|state| self.work.change(state));
                self.conclude(event, talk);
            }
            Line::System(System::BackgroundTasksChanged { tasks }) => {
                if let Some(tasks) = tasks.and_then(known::<Vec<Task>>) {
                    self.work.list(tasks);
                }
            }
            Line::System(System::TaskStarted(task)) => {
                if let Some(task) = known::<Task>(task) {
                    self.work.start(task);
                }
            }
            Line::System(System::TaskNotification { task_id }) => {
                if let Some(task) = task_id.as_ref().and_then(Value::as_str) {
                    self.work.stop(task);
                }
            }
            Line::System(System::ApiRetry { attempt, max_retries }) => {
                if let Some(attempt) = attempt.as_ref().and_then(Value::as_u64) {
                    let most = max_retries.as_ref().and_then(Value::as_u64);
                    talk.event(Event::Retry { attempt, most });
                }
            }
            Line::StreamEvent { event, parent_tool_use_id: None } => match event {
                Piece::ContentBlockStart => self.block.clear(),
                Piece::ContentBlockDelta { delta: Delta::TextDelta { text } } => {
                    self.tell(&text, talk);
                }
                Piece::ContentBlockDelta { delta: Delta::Other } | Piece::Other => {}
            },
            Line::Assistant { message, parent_tool_use_id, error: None } => {
                for block in message.blocks() {
                    match block {
                        // What its agents tell each other is not the answer.
                        Block::Text { text } if parent_tool_use_id.is_none() => {
                            self.close_block(&text, talk);
                        }
                        Block::ToolUse { name } => talk.event(Event::ToolUse { name }),
                        Block::Text { .. } | Block::ToolResult { .. } | Block::Other => {}
                    }
                }
            }
            Line::User { message } => {
                for block in message.blocks() {
                    if let Block::ToolResult { content } = block {
                        let output = content.map(Content::into_text).unwrap_or_default();
                        talk.event(Event::ToolResult { output });
                    }
                }
            }
            Line::ControlRequest { request_id: id, request: Control::CanUseTool(permission) } => {
                let request = Request::new(id, permission);
                if self.ask.force {
                    Told::ControlResponse { response: request.granted() }.say(talk);
                } else {
                    self.requests.push_back(request);
                }
                if self.requests.len() == 1 {
                    self.ask_caller(talk);
                }
            }
            Line::ControlRequest { request_id, request: Control::Other } => {
                let error = "this is not known here".to_owned();
                Told::ControlResponse { response: Response::Error { request_id, error } }.say(talk);
            }
            Line::Result(outcome) => {
                // Before it has begun, there is nothing to fail at but its session.
                let is_lost = outcome.is_error && !self.is_begun && self.ask.session.is_some();
                let event =
                    if is_lost { Some(Event::SessionLost) } else { self.work.result(outcome) };
                self.conclude(event, talk);
            }
            Line::StreamEvent { parent_tool_use_id: Some(_), .. }
            | Line::Assistant { error: Some(_), .. }
            | Line::System(System::Other)
            | Line::Other => {}
        }
        Ok(())
    }

    fn answer(&mut self, _: &Approval, choice: &Choice, talk: &mut Talk) {
        let response = self.requests.front_mut().and_then(|request| request.answer(choice));
        if let Some(response) = response {
            Told::ControlResponse { response }.say(talk);
            self.requests.pop_front();
        }
        self.ask_caller(talk);
    }

    fn is_resting(&self) -> bool {
        self.work.is_resting()
    }

    fn rest(&mut self, talk: &mut Talk) {
        let event = self.work.end();
        self.conclude(event, talk);
    }

    fn cancel(&mut self, talk: &mut Talk) {
        Told::ControlRequest { request_id: "cancel", request: Demand::Interrupt }.say(talk);
    }
}

/// The agent's own description of the event, if its form is known.
fn known<T: DeserializeOwned>(said: Value) -> Option<T> {
    T::deserialize(said).ok()
}

/// What a text has beyond what was told of it, if that is its beginning. Where a piece ended in the
/// middle of a character a replacement was told, which is as long as the half in UTF-16.
fn after(told: &str, text: &str) -> Option<String> {
    let mut units = text.encode_utf16();
    let is_same = |unit: u16| {
        units.next().is_some_and(|next| next == unit || unit == char::REPLACEMENT_CHARACTER as u16)
    };
    told.encode_utf16().all(is_same).then(|| String::from_utf16_lossy(&units.collect::<Vec<_>>()))
}

impl Told<'_> {
    fn say(&self, talk: &mut Talk) {
        talk.line(serde_json::to_string(self).expect("its members are plain data"));
    }
}

impl Message {
    pub(super) fn blocks(self) -> Vec<Block> {
        match self.content {
            Content::Text(text) => vec![Block::Text { text }],
            Content::Blocks(blocks) => blocks,
        }
    }
}

impl Content {
    fn into_text(self) -> String {
        let blocks = match self {
            Self::Text(text) => return text,
            Self::Blocks(blocks) => blocks,
        };
        let texts = blocks.into_iter().filter_map(|block| match block {
            Block::Text { text } => Some(text),
            Block::ToolUse { .. } | Block::ToolResult { .. } | Block::Other => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "json! is how tests write values")]
mod tests {
    use serde_json::json;

    use super::*;

    // Recorded from Claude Code 2.1.197, without what nobody reads.
    const TOOL: &str = include_str!("recorded/claude-tool.jsonl");
    const QUESTION: &str = include_str!("recorded/claude-ask.jsonl");
    const REFUSED: &str = include_str!("recorded/claude-error.jsonl");
    const LOST: &str = include_str!("recorded/claude-lost.jsonl");
    const RETRY: &str = include_str!("recorded/claude-retry.jsonl");
    const BACKGROUND: &str = include_str!("recorded/claude-background-2.1.197.jsonl");
    // And from 2.1.325: a command that ends after the turn that started it, one that ends within
    // it, and a message after a process that was killed while such a command ran.
    const LISTED: &str = include_str!("recorded/claude-background.jsonl");
    const ENDED_WITHIN: &str = include_str!("recorded/claude-background-fast.jsonl");
    const STALE: &str = include_str!("recorded/claude-stale.jsonl");

    /// What is told to whom when it says these lines and each question gets the same answer.
    fn played(ask: Ask, lines: &str, choice: usize) -> (Vec<Event>, Vec<Value>) {
        let (mut claude, mut talk) = (Claude::new(ask), Talk::default());
        let mut answered = 0;
        for line in lines.lines() {
            claude.hear(line, &mut talk).unwrap();
            while let Some(Event::Approval(approval)) = talk.events.get(answered).cloned() {
                answered += 1;
                claude.answer(&approval, &approval.choices[choice], &mut talk);
            }
            answered = talk.events.len();
        }
        let said = String::from_utf8(talk.lines).unwrap();
        (talk.events, said.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    fn texts(events: &[Event]) -> String {
        let mut told = String::new();
        for event in events {
            if let Event::Text(text) = event {
                told.push_str(text);
            }
        }
        told
    }

    /// The question.
    fn asked(events: &[Event]) -> &Approval {
        let is_question = |event: &&Event| matches!(event, Event::Approval(_));
        let Some(Event::Approval(asked)) = events.iter().find(is_question) else {
            panic!("{events:?}")
        };
        asked
    }

    #[test]
    fn what_it_says_about_itself_in_another_way_fails_nothing() {
        let ask = Ask { profile: Some("reviewer".to_owned()), ..Ask::default() };
        let lines = r#"{"type":"system","subtype":"init","session_id":"s","agents":[{"name":"reviewer"}]}
            {"type":"system","subtype":"api_retry","attempt":"first"}
            {"type":"system","subtype":"api_retry"}
            {"type":"system","subtype":"session_state_changed","state":{"is":"idle"}}
            {"type":"system","subtype":"background_tasks_changed","tasks":{"one":"task"}}
            {"type":"system","subtype":"task_started","task_id":7}
            {"type":"system","subtype":"task_notification","task_id":7}"#;
        let begun = Event::Init { model: None, session: Some("s".to_owned()) };
        assert_eq!(played(ask, lines, 0).0, [begun]);
    }

    #[test]
    fn what_it_says_becomes_events_once_each() {
        let (events, said) = played(Ask { force: true, ..Ask::default() }, TOOL, 0);
        assert_eq!(
            events[0],
            Event::Init {
                model: Some("claude-opus-4-8[1m]".to_owned()),
                session: Some("f31acf28-d77a-4aa3-a063-201f6cb8fe3a".to_owned()),
            }
        );
        assert_eq!(texts(&events), "Let me look.\n\nHello there, you.");
        let tools = events.iter().filter(|event| matches!(event, Event::ToolUse { .. }));
        assert_eq!(tools.collect::<Vec<_>>(), [&Event::ToolUse { name: "Bash".to_owned() }]);
        assert!(events.contains(&Event::ToolResult { output: "done it".to_owned() }));
        let Some(Event::Done { summary, stats }) = events.last() else { panic!("{events:?}") };
        assert_eq!(summary.as_deref(), Some("Hello there, you."));
        let expected = json!({
            "durationMs": 931, "turns": 2, "costUsd": 0.0011, "inputTokens": 20,
            "outputTokens": 40, "cacheReadTokens": 0, "cacheWriteTokens": 0,
        });
        assert_eq!(Value::from(stats.clone()), expected);
        // Who may do everything asks nobody.
        assert!(!events.iter().any(|event| matches!(event, Event::Approval(_))));
        assert_eq!(said[0]["response"]["response"]["behavior"], "allow");
    }

    #[test]
    fn without_force_the_caller_decides() {
        let (events, said) = played(Ask::default(), TOOL, 0);
        let asked = asked(&events);
        assert_eq!(asked.prompt, "Bash: touch made.txt && echo done it");
        assert_eq!(asked.detail["input"]["command"], "touch made.txt && echo done it");
        let response = &said[0]["response"];
        assert_eq!(response["request_id"], asked.id.as_str());
        assert_eq!(response["response"]["updatedInput"], asked.detail["input"]);
        assert_eq!(response["response"]["updatedPermissions"], json!([]));

        // Not to be asked again is for this run: neither settings nor modes change.
        let (_, said) = played(Ask::default(), TOOL, 1);
        let rules = said[0]["response"]["response"]["updatedPermissions"].as_array().unwrap();
        assert_eq!(rules.len(), 2);
        assert!(rules.iter().all(|rule| rule["destination"] == "session"));

        let (_, said) = played(Ask::default(), TOOL, 2);
        assert_eq!(said[0]["response"]["response"]["behavior"], "deny");
    }

    #[test]
    fn its_own_questions_are_asked_with_what_it_offers() {
        let (events, said) = played(Ask::default(), QUESTION, 0);
        let labels: Vec<_> = asked(&events).choices.iter().map(|choice| &*choice.label).collect();
        assert_eq!(labels, ["Red", "Blue", "No answer"]);
        let input = &said[0]["response"]["response"]["updatedInput"];
        assert_eq!(input["answers"], json!({ "Which color?": "Red" }));
    }

    #[test]
    fn an_option_may_be_called_as_a_choice_of_ours_is() {
        // Rules come with a question only where somebody wants them to be allowed by its answer.
        let rules = r#""permission_suggestions":[{"type":"addRules"}],"tool_name""#;
        let lines = QUESTION.replace("Red", "always").replace(r#""tool_name""#, rules);
        let (events, said) = played(Ask::default(), &lines, 0);
        assert!(asked(&events).is_question);
        let response = &said[0]["response"]["response"];
        assert_eq!(response["updatedInput"]["answers"], json!({ "Which color?": "always" }));
        assert_eq!(response["updatedPermissions"], json!([]));
    }

    #[test]
    fn the_work_ends_with_the_turn_after_its_last_background_task() {
        for lines in [BACKGROUND, LISTED, ENDED_WITHIN] {
            let (mut claude, mut talk) = (Claude::new(Ask::default()), Talk::default());
            for line in lines.lines() {
                assert!(!talk.is_closed, "before {line}");
                claude.hear(line, &mut talk).unwrap();
            }
            let ends = |event: &&Event| matches!(event, Event::Done { .. });
            assert_eq!(talk.events.iter().filter(ends).count(), 1);
            let Some(Event::Done { summary, stats }) = talk.events.last() else {
                panic!("{:?}", talk.events)
            };
            assert_eq!(summary.as_deref(), Some("Notified: all is done."));
            assert_eq!((&stats["turns"], &stats["outputTokens"]), (&json!(3), &json!(60)));
            assert!(talk.is_closed);
        }
    }

    #[test]
    fn a_result_about_earlier_work_does_not_answer_the_message() {
        let session = Some("c29277ad-1b20-400a-9e4e-f4343e8782ff".to_owned());
        let (events, _) = played(Ask { session, ..Ask::default() }, STALE, 0);
        let ends = |event: &&Event| matches!(event, Event::Done { .. });
        assert_eq!(events.iter().filter(ends).count(), 1);
        let Some(Event::Done { summary, stats }) = events.last() else { panic!("{events:?}") };
        assert_eq!(summary.as_deref(), Some("Notified: all is done."));
        assert_eq!(stats["turns"], 1);
    }

    #[test]
    fn silence_ends_the_work_where_no_turn_follows_a_background_task() {
        let (mut claude, mut talk) = (Claude::new(Ask::default()), Talk::default());
        for line in LISTED.lines() {
            if claude.is_resting() {
                break;
            }
            claude.hear(line, &mut talk).unwrap();
        }
        assert_eq!(talk.events.last(), Some(&Event::Background(vec!["bg".to_owned()])));
        claude.rest(&mut talk);
        let Some(Event::Done { summary, .. }) = talk.events.last() else { panic!() };
        assert_eq!(summary.as_deref(), Some("First result: launched."));
        // The next turn would have begun here, and is not cut off.
        let mut claude = Claude::new(Ask::default());
        for line in LISTED.lines().take_while(|line| !line.contains("Notified")) {
            claude.hear(line, &mut talk).unwrap();
        }
        assert!(!claude.is_resting());
    }

    #[test]
    fn a_model_that_does_not_answer_is_told_of_each_time() {
        let (events, _) = played(Ask::default(), RETRY, 0);
        let retry = |attempt| Event::Retry { attempt, most: Some(10) };
        assert_eq!(events[1..], [retry(1), retry(2)]);
    }

    #[test]
    fn an_agent_that_it_does_not_have_is_no_reason_to_be_another() {
        let hear = |agent: &str| {
            let ask = Ask { profile: Some(agent.to_owned()), ..Ask::default() };
            let mut talk = Talk::default();
            Claude::new(ask).hear(RETRY.lines().next().unwrap(), &mut talk)
        };
        assert_eq!(hear("Plan"), Ok(()));
        assert_eq!(hear("plain").unwrap_err().kind, "has no agent `plain` of its own");
    }

    #[test]
    fn questions_wait_for_each_other() {
        let (mut claude, mut talk) = (Claude::new(Ask::default()), Talk::default());
        let asks = TOOL.lines().find(|line| line.contains("can_use_tool")).unwrap();
        claude.hear(asks, &mut talk).unwrap();
        claude.hear(&asks.replace("4d5f0c15", "00000000"), &mut talk).unwrap();
        let [Event::Approval(first)] = &talk.events[..] else { panic!("{:?}", talk.events) };
        let first = first.clone();
        claude.answer(&first, &first.choices[0], &mut talk);
        let [_, Event::Approval(second)] = &talk.events[..] else { panic!("{:?}", talk.events) };
        assert!(second.id.starts_with("00000000"));
    }

    #[test]
    fn why_it_failed_is_told_in_its_words_and_not_as_an_answer() {
        let (events, _) = played(Ask::default(), REFUSED, 0);
        assert_eq!(texts(&events), "");
        let said = Event::Error("Invalid API key · Fix external API key".to_owned());
        assert_eq!(events.last(), Some(&said));
    }

    #[test]
    fn a_session_that_is_gone_is_told_apart() {
        let session = Some("186179ba-0511-463d-bf2f-6b7b75e5388f".to_owned());
        let (events, _) = played(Ask { session, ..Ask::default() }, LOST, 0);
        assert_eq!(events, [Event::SessionLost]);
    }

    #[test]
    fn a_text_that_came_in_pieces_and_was_begun_anew_is_told_whole() {
        let piece = |text: &str| {
            let delta = json!({ "type": "text_delta", "text": text });
            let event = json!({ "type": "content_block_delta", "index": 0, "delta": delta });
            json!({ "type": "stream_event", "event": event, "parent_tool_use_id": null })
        };
        let whole = |text: &str| {
            let content = json!([{ "type": "text", "text": text }]);
            json!({ "type": "assistant", "message": { "role": "assistant", "content": content } })
        };
        for (lines, expected) in [
            (vec![piece("Hel"), whole("Hello")], "Hello"),
            // Two halves of a character came in two pieces.
            (vec![piece("a\u{fffd}"), piece("\u{fffd}b"), whole("a🦀b.")], "a\u{fffd}\u{fffd}b."),
            (vec![piece("Goo"), whole("Hello")], "Goo\n\nHello"),
            (vec![whole("One"), whole("Two")], "One\n\nTwo"),
        ] {
            let lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
            let (events, _) = played(Ask::default(), &lines.join("\n"), 0);
            assert_eq!(texts(&events), expected);
        }
    }

    #[test]
    fn nothing_that_a_caller_said_is_on_its_command_line() {
        let ask = Ask {
            text: "--version".to_owned(),
            session: Some("s".to_owned()),
            model: Some("sonnet".to_owned()),
            ..Ask::default()
        };
        let arguments = Claude::new(ask).arguments();
        assert!(!arguments.contains(&"--version".to_owned()));
        assert!(arguments.ends_with(&["--model=sonnet".to_owned(), "--resume=s".to_owned()]));
    }
}
