import { cleanupCommand } from "./cleanup.ts";
import type { Command } from "./command.ts";
import { completionCommand, createCompleteCommand } from "./completion.ts";
import { diffCommand } from "./diff.ts";
import { doctorCommand } from "./doctor.ts";
import { dumpCommand } from "./dump.ts";
import { explainCommand } from "./explain.ts";
import { createHelpCommand } from "./help.ts";
import { createManCommand } from "./man_page.ts";
import { renderCommand } from "./render.ts";
import { runCommand } from "./run.ts";
import { statusCommand } from "./status.ts";
import { traceCommand } from "./trace.ts";
import { versionCommand } from "../version.ts";
import { writeConfigurationCommand } from "./write_configuration.ts";

/** Verbs other than help, in the order of the help. */
const VERBS: readonly Command[] = [
  runCommand,
  statusCommand,
  doctorCommand,
  explainCommand,
  renderCommand,
  diffCommand,
  dumpCommand,
  traceCommand,
  cleanupCommand,
  writeConfigurationCommand,
  completionCommand,
  createManCommand(() => COMMANDS),
  versionCommand,
  createCompleteCommand(() => COMMANDS),
];

/** Every verb. */
export const COMMANDS: readonly Command[] = [...VERBS, createHelpCommand(VERBS)];
