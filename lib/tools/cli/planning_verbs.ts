/**
 * The verbs that serve, or that plan and compare by themselves: far more code than a question to a
 * running process needs. One module, as `asking_verbs.ts`.
 *
 * @module
 */
export { readDumpedChanges, readDumpedStatus } from "../dump/read_dump.ts";
export { checkVerb } from "./commands/check.ts";
export { cleanupVerb } from "./commands/cleanup.ts";
export { printCluster } from "./commands/cluster_status.ts";
export { compareDump, showWhatIf } from "./commands/diff_planned.ts";
export { convertVerb } from "./commands/convert.ts";
export { doctorVerb } from "./commands/doctor.ts";
export { dumpVerb } from "./commands/dump.ts";
export { explainHere } from "./commands/explain_here.ts";
export { renderVerb } from "./commands/render.ts";
export { runVerb } from "./commands/run.ts";
export { traceVerb } from "./commands/trace.ts";
export { writeConfigurationVerb } from "./commands/write_configuration.ts";
