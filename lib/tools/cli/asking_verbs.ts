/**
 * What most verbs need: the configuration, the texts, and the verbs that ask a running process. A bundle
 * has a file of its own for each module that is imported when it is needed, so these are one module.
 *
 * @module
 */
export { loadConfiguration } from "../../config/load.ts";
export { createLogger, logsToJournal } from "../../log/create_logger.ts";
export { diffVerb } from "./commands/diff.ts";
export { explainVerb } from "./commands/explain.ts";
export { statusVerb } from "./commands/status.ts";
export { completeVerb, completionScript } from "./completion.ts";
export { helpText, manPage } from "./help.ts";
