#!/bin/sh
# A handler in the shell, one turn at a time: it counts the bytes of the line with the message.
#
#   [[agents]]
#   name = "count"
#   kind = "handler"
#   command = ["./handler.sh"]
#   concurrency = 1

# The type and the turn stand at the beginning of a line, without spaces.
while read -r line; do
    type=${line#'{"type":"'}
    type=${type%%'"'*}
    turn=${line#*'"turn":"'}
    turn=${turn%%'"'*}
    case $type in
        hello)
            echo '{"type":"hello","protocol":1}'
            ;;
        begin)
            echo '{"type":"status","turn":"'"$turn"'","state":"working","text":"Counting"}'
            echo '{"type":"answer","turn":"'"$turn"'","text":"'"${#line}"' bytes"}'
            ;;
        cancel)
            # The turn is over by the time that this is read: the shell does one thing after the other.
            ;;
    esac
done
