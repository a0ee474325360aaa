import type { CleanupReport } from "../../engine/data_plane.ts";
import type { Dependencies } from "../../app/dependencies.ts";

/** Prints a report; for a dry run also the shell commands. */
export function printCleanupReport(
  { print, complain }: Pick<Dependencies, "print" | "complain">,
  { removed, failed, kept = [], commands = [] }: CleanupReport,
  { dryRun }: { readonly dryRun: boolean },
): void {
  for (const line of removed) print(`${dryRun ? "would remove" : "removed"} ${line}\n`);
  for (const line of kept) print(`left ${line}\n`);
  for (const line of failed) complain(`Cannot remove ${line}\n`);
  if (commands.length === 0) return;
  print("\nby these commands:\n\n");
  for (const command of commands) print(command);
}
