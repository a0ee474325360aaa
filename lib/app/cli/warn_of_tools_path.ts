import type { Logger } from "../../log/logger.ts";
import { toolsPathProblem } from "../../os/tools_path.ts";
import type { ProcessInfo } from "../dependencies.ts";

/** Warns, with the PATH that would be right, when the folders are not searched. */
export function warnOfToolsPath(
  { process }: { readonly process: Pick<ProcessInfo, "env"> },
  { logger, toolsPath }: { readonly logger: Logger; readonly toolsPath: readonly string[] },
): void {
  const problem = toolsPathProblem(toolsPath, process.env("PATH"));
  if (problem) logger.warn("The folders of --tools-path are not searched", { ...problem });
}
