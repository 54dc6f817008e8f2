-- Tasks of agents that take one message of a conversation at a time, and where the messages stand
-- that they wait with. It follows from the tasks and is made anew by every start.
CREATE TABLE line (
    task INTEGER PRIMARY KEY,
    agent INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    context TEXT NOT NULL,
    position INTEGER NOT NULL
) STRICT;

CREATE INDEX line_by_conversation ON line (agent, owner, context, position);

-- The first of each conversation, so that who looks for work passes over a conversation in one step,
-- however many wait in it.
CREATE TABLE heads (
    agent INTEGER NOT NULL,
    position INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    context TEXT NOT NULL,
    PRIMARY KEY (agent, position)
) STRICT, WITHOUT ROWID;
