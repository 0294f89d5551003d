# Gives the command the streams of the terminal instead of nsys's pipes, if those arrived, and says
# which process it is. What it could not say that of has not begun, and may be run without nsys.
# Only builtins: PATH is the command's affair. Pipes are opened here by their paths: nsys's agents
# would keep what they inherit, and a reader would wait for them.
if [ -n "$FASTFEED_OUT" ]; then
    if ( : >"$FASTFEED_OUT" ) 2>/dev/null; then exec 8>"$FASTFEED_OUT"; else exec 8>&-; fi
fi
if [ -n "$FASTFEED_ERR" ]; then
    if ( : >"$FASTFEED_ERR" ) 2>/dev/null; then exec 9>"$FASTFEED_ERR"; else exec 9>&-; fi
fi
if ( : <&7 >&8 2>&9 ) 2>/dev/null; then how=direct; exec <&7 >&8 2>&9 7<&- 8>&- 9>&-; else how=piped; fi
echo $$ $how >"$FASTFEED_PID" || exit 125
if [ -n "$FASTFEED_TMPDIR" ]; then TMPDIR=$FASTFEED_TMPDIR; export TMPDIR; else unset TMPDIR; fi
if [ -n "$FASTFEED_PYTHON" ]; then PYTHONPATH=$FASTFEED_PYTHON${PYTHONPATH:+:$PYTHONPATH}; export PYTHONPATH; fi
unset FASTFEED_PID FASTFEED_TMPDIR FASTFEED_OUT FASTFEED_ERR FASTFEED_PYTHON
exec "$@"
