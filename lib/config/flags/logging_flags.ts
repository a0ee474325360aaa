/**
 * Flags about the log.
 *
 * @module
 */
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
    help:
      "how much is logged: 0 what an operator wants to know, 2 each sync, 4 and more for debugging",
    withConfig: "wins",
  },
  {
    name: "vmodule",
    type: "vmodule",
    group: "Logging",
    value: "PATTERN=N",
    field: "logging.vmodule",
    help: "verbosity of single parts of the program (the component of a line: reflector, syncer, " +
      "manifests, conntrack_cleaner) as PATTERN=N; those of the file count too, after these. " +
      "Only with text logs",
    withConfig: "merged",
  },
  {
    name: "logging-format",
    type: "text",
    group: "Logging",
    value: "FORMAT",
    choices: ["text", "json"],
    field: "logging.format",
    help: "how a line of the log looks",
    withConfig: "wins",
  },
  {
    name: "log-flush-frequency",
    type: "duration",
    group: "Logging",
    field: "logging.flushFrequency",
    help: "longest time that lines are held back; accepted, since each line is written at once",
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
    help:
      "bytes that are held back with --log-text-split-stream; accepted without effect, and only with feature gate LoggingAlphaOptions",
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
    help:
      "bytes that are held back with --log-json-split-stream; accepted without effect, and only with feature gate LoggingAlphaOptions",
    withConfig: "wins",
  },
] as const satisfies readonly Flag[];
