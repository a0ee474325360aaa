import type { CleanupReport } from "../../lib/controller/data_plane.ts";
import { messageOf } from "../../lib/log/message_of.ts";
import { cidrFamilyOf } from "../../lib/net/cidr.ts";
import { IP_FAMILIES } from "../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import { deleteLinkLine } from "../iproute/ip_text.ts";
import { RemovalRun } from "../netfilter/foreign/removal_run.ts";
import { readCniFile, removeCniFile } from "./cni_file.ts";
import { ownTunnels, POD_ROUTE_PROTOCOL, type PodMachine } from "./machine_changes.ts";
import { iptablesRemovals } from "./masquerade_iptables.ts";
import { hasNft, MASQUERADE_TABLE, readMasquerade } from "./masquerade.ts";

/** The options of the data plane. */
export interface PodNetworkOptions {
  /** Files of CNI configurations that an earlier run may have written. */
  readonly cniFiles: readonly string[];
  /**
   * Whether a cleanup looks at iptables even if nftables works here. The look may load modules.
   * @default {false}
   */
  readonly isThorough?: boolean;
}

/** Removes everything that any run added for the network of pods, or only reports it. */
export async function cleanUpPodNetwork(
  { commands, machine }: { readonly commands: CommandRunner; readonly machine: PodMachine },
  { dryRun, cniFiles, isThorough = false }: PodNetworkOptions & { readonly dryRun: boolean },
): Promise<CleanupReport> {
  const run = new RemovalRun({ commands }, { dryRun });
  for (const family of IP_FAMILIES) {
    const routes = machine.routes.flatMap(({ destination }) =>
      destination !== undefined && cidrFamilyOf(destination) === family ? [destination] : []
    );
    if (routes.length === 0) continue;
    const ours = ["table", "main", "proto", String(POD_ROUTE_PROTOCOL)];
    const flag = family === "IPv6" ? "-6" : "-4";
    await run.do("routes to pods", {
      command: ["ip", flag, "route", "flush", ...ours],
      removes: routes.map((destination) => `route ${destination} to pods`),
    });
  }
  for (const { device } of ownTunnels(machine)) {
    await run.do(`tunnel ${device}`, {
      command: ["ip", ...deleteLinkLine(device).split(" ")],
      removes: [`tunnel ${device}`],
    });
  }
  // A tool that fails today may have written the table: the look at the table then has the reason.
  const isNft = await hasNft(commands).catch(() => true);
  if (isNft) await removeTable(commands, run);
  if (!isNft || isThorough) await removeChain(commands, run);
  for (const path of new Set(cniFiles)) await removeFile(path, run);
  return run.report();
}

async function removeTable(commands: CommandRunner, run: RemovalRun): Promise<void> {
  const { family, name } = MASQUERADE_TABLE;
  try {
    if (await readMasquerade(commands) === undefined) return;
  } catch (error) {
    return run.unseen(`table ${name} of nftables`, messageOf(error));
  }
  await run.do(`table ${name}`, {
    command: ["nft", "delete", "table", family, name],
    removes: [`table ${family} ${name} of nftables`],
  });
}

async function removeChain(commands: CommandRunner, run: RemovalRun): Promise<void> {
  try {
    for (const { family, restore, lines } of await iptablesRemovals(commands)) {
      await run.do(`masquerade of pods, ${family}`, {
        command: [restore, "--noflush"],
        input: () => lines.map((line) => `${line}\n`),
        removes: [`chain KUBE-RELAY-PODS of iptables, ${family}`],
      });
    }
  } catch (error) {
    run.unseen("chain KUBE-RELAY-PODS of iptables", messageOf(error));
  }
}

async function removeFile(path: string, run: RemovalRun): Promise<void> {
  try {
    if (await readCniFile(path) === undefined) return;
  } catch (error) {
    return run.keep(messageOf(error));
  }
  if (run.dryRun) {
    await run.try({ command: ["rm", path], removes: [`file ${path}`] });
    return;
  }
  try {
    await removeCniFile(path);
    run.remove(`file ${path}`);
  } catch (error) {
    run.fail(`file ${path}: ${messageOf(error)}`);
  }
}
