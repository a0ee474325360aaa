/**
 * Removes what the driver of BIRD added to a machine: announcements and sessions, routes in the
 * kernel, and the files. Works without a plan, from the files of an earlier run.
 *
 * @module
 */
import { RemovalRun } from "../netfilter/foreign/removal_run.ts";
import type { CleanupReport } from "../../lib/controller/data_plane.ts";
import { messageOf } from "../../lib/log/message_of.ts";
import { type IpAddress, parseIpAddress } from "../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import type { BgpPlan } from "../../lib/routing/bgp_plan.ts";
import { type BirdPaths, type BirdWriter, ForeignBirdError } from "./bird_writer.ts";

interface CleanupDependencies {
  readonly commands: CommandRunner;
  readonly writer: BirdWriter;
}

/** Removes everything, or only reports it. */
export async function cleanUpBird(
  { commands, writer }: CleanupDependencies,
  { dryRun, paths }: { readonly dryRun: boolean; readonly paths: BirdPaths },
): Promise<CleanupReport> {
  const run = new RemovalRun({ commands }, { dryRun });
  try {
    const text = await writer.readFile();
    if (text === undefined) return run.report();
    const place = placeOf(text);
    if (!dryRun) {
      // BIRD would write its routes again, and would go on announcing.
      await writer.empty(emptyPlan(place)).catch((error) => {
        if (!(error instanceof ForeignBirdError)) throw error;
        run.keep(`the BIRD on ${paths.socket}: kube-relay did not write its configuration`);
      });
    }
    await removeRoutes({ commands, run }, place);
    if (!dryRun) await writer.removeCandidate();
    for (const path of [paths.file, paths.secretsFile]) await run.removeFile(path);
  } catch (error) {
    run.fail(messageOf(error));
  }
  return run.report();
}

/** The parts of a configuration that say where routes of peers are. */
interface RoutePlace {
  readonly routerId: IpAddress;
  readonly table: number;
  readonly metric: number;
}

/** Reads them from a configuration that kube-relay wrote. */
function placeOf(text: string): RoutePlace {
  const value = (pattern: RegExp) => pattern.exec(text)?.[1] ?? "";
  return {
    routerId: parseIpAddress(value(/^router id (\S+);$/m)),
    table: Number(value(/^ {2}kernel table (\d+);$/m)),
    metric: Number(value(/^ {2}metric (\d+);$/m)),
  };
}

function emptyPlan({ routerId, table, metric }: RoutePlace): BgpPlan {
  return {
    routerId,
    localAs: 1,
    peers: [],
    announced: [],
    imports: {
      mesh: [],
      external: [],
      refused: [],
      defaultRoute: false,
      table,
      metric,
      limitPerPeer: 1,
    },
  };
}

/** BIRD marks its routes, and ours have a metric of their own. A running BIRD has removed them. */
async function removeRoutes(
  { commands, run }: { readonly commands: CommandRunner; readonly run: RemovalRun },
  { table, metric }: RoutePlace,
): Promise<void> {
  for (const flag of ["-4", "-6"]) {
    const ours = ["table", String(table), "proto", "bird", "metric", String(metric)];
    const { stdout } = await commands.run("ip", [flag, "route", "show", ...ours]);
    const routes = stdout.split("\n").filter((line) => line.trim() !== "");
    if (routes.length === 0) continue;
    const removes = routes.map((line) => `route ${line.trim().split(/\s+/)[0]} of BIRD`);
    const command = ["ip", flag, "route", "flush", ...ours] as const;
    await run.do("routes of BIRD", { command, removes });
  }
}
