import type { Flag } from "../flag.ts";

/** Rows of the table in `flags.ts`. */
export const LOGGING_FLAGS = [
  {
    name: "v",
    type: "integer",
    group: "Logging",
    value: "N",
    minimum: 0,
    maximum: 2 ** 31 - 1,
    field: "logging.verbosity",
    help: "verbosity of the log: 0 for operators, 2 adds each sync, 4 and more for debugging",
    withConfig: "wins",
  },
  {
    name: "vmodule",
    type: "vmodule",
    group: "Logging",
    value: "PATTERN=N",
    field: "logging.vmodule",
    help:
      "verbosity of single components (such as reflector, sync_loop, manifests, conntrack_cleaner)" +
      " as PATTERN=N; patterns of the file apply after these. Only with text logs",
    withConfig: "merged",
  },
  {
    name: "logging-format",
    type: "text",
    group: "Logging",
    value: "FORMAT",
    choices: ["text", "json"],
    field: "logging.format",
    help: "format of the log",
    withConfig: "wins",
  },
  {
    name: "log-flush-frequency",
    type: "duration",
    group: "Logging",
    field: "logging.flushFrequency",
    help: "longest time for which log lines are buffered; accepted without effect, each line is " +
      "written at once",
    withConfig: "wins",
  },
  {
    name: "log-text-split-stream",
    type: "boolean",
    group: "Logging",
    field: "logging.options.text.splitStream",
    help:
      "errors to standard error and the rest to standard output, with text logs; accepted without effect, and only with feature gate LoggingAlphaOptions",
    withConfig: "wins",
  },
  {
    name: "log-text-info-buffer-size",
    type: "text",
    group: "Logging",
    value: "QUANTITY",
    field: "logging.options.text.infoBufferSize",
    help: "bytes buffered with --log-text-split-stream; accepted without effect, and only with " +
      "feature gate LoggingAlphaOptions",
    withConfig: "wins",
  },
  {
    name: "log-json-split-stream",
    type: "boolean",
    group: "Logging",
    field: "logging.options.json.splitStream",
    help:
      "errors to standard error and the rest to standard output, with json logs; accepted without effect, and only with feature gate LoggingAlphaOptions",
    withConfig: "wins",
  },
  {
    name: "log-json-info-buffer-size",
    type: "text",
    group: "Logging",
    value: "QUANTITY",
    field: "logging.options.json.infoBufferSize",
    help: "bytes buffered with --log-json-split-stream; accepted without effect, and only with " +
      "feature gate LoggingAlphaOptions",
    withConfig: "wins",
  },
] as const satisfies readonly Flag[];
