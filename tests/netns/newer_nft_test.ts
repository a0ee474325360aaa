/**
 * Tests nftables mode on a node where another program uses a newer nft, whose maps make the nft of
 * kube-relay crash.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import {
  isAtLeast,
  parseVersion,
  versionText,
} from "../../backends/netfilter/probe/tool_version.ts";
import type { DoctorReport } from "../../lib/tools/doctor/doctor_report.ts";
import { permissionFlags } from "../../lib/os/permissions.ts";
import { programFile } from "../support/drivers/program_file.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { program, type Requirement, testNeeding } from "../support/requirement.ts";
import { type Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { NFTABLES_MODE } from "../support/stages/rule_modes.ts";
import { VIP, webServices, webSlices } from "../support/builders/web_service.ts";

/** The folder of the newer tools, whose names are those of the older ones on the PATH. */
const NEWER = Deno.env.get("KUBE_RELAY_NEWER_TOOLS") ?? "";

function version(program: string): readonly number[] {
  try {
    const { stdout } = new Deno.Command(program, { args: ["--version"] }).outputSync();
    return parseVersion(new TextDecoder().decode(stdout)) ?? [];
  } catch {
    return [];
  }
}

const LEAST = [1, 1, 2];
const OWN = version("nft");
const TWO_VERSIONS: Requirement = [
  "nft 1.1.2 or newer in the folder KUBE_RELAY_NEWER_TOOLS ('.ci/run debian-13' makes one), and an " +
  "older one on the PATH",
  NEWER !== "" && isAtLeast(version(`${NEWER}/nft`), LEAST) && !isAtLeast(OWN, LEAST),
];
const test = testNeeding("another program with a newer nft", [
  ...netnsRequirements(),
  ...NFTABLES_MODE.requirements(),
  program("curl"),
  TWO_VERSIONS,
]);

const FOREIGN = "add table inet fw ; add map inet fw m { type ipv4_addr : verdict ; }";

/** Has the newer nft write its table, or delete it. */
async function newerNft(node: Namespace, command: string): Promise<void> {
  await node.output(`${NEWER}/nft`, [command]);
}

function assertExplained(text: string): void {
  assertStringIncludes(text, "SIGSEGV");
  assertStringIncludes(
    text,
    `nft ${versionText(OWN)} cannot read table inet fw, written by nft 1.1.2 or newer`,
  );
  assertStringIncludes(text, "use nft 1.1.2 or newer here too");
}

test("a newer nft of another program: a start names the versions, the table and the remedy", async () => {
  await using scene = await RelayScene.create();
  const { node } = scene.cluster;
  await scene.write(webServices(), webSlices("a1"));
  await newerNft(node, FOREIGN);
  const relay = scene.start(NFTABLES_MODE.args);
  assertEquals(await relay.ended(), 1, relay.log);
  assertExplained(relay.log);
  assert(!relay.log.includes("modprobe"), relay.log);
  // What the newer one wrote stays as it is, and without it the start succeeds.
  await newerNft(node, "delete table inet fw");
  await using next = scene.start(NFTABLES_MODE.args);
  await next.settled();
});

test("a newer nft of another program: a running kube-relay reports it, and recovers", async () => {
  await using scene = await RelayScene.create();
  const { node } = scene.cluster;
  await scene.write(webServices(), webSlices("a1"));
  await using relay = scene.start([
    ...NFTABLES_MODE.args,
    "--healthz-bind-address=127.0.0.1:10256",
  ]);
  await relay.settled();
  const client = ProbeClient.start(scene.cluster.client);
  assertEquals(await client.who(VIP), "pod-a1");
  await newerNft(node, FOREIGN);
  // The rules of the last good sync still serve.
  assertEquals(await client.who(VIP), "pod-a1");
  await scene.write(webServices(), webSlices("b1"));
  await relay.logged("cannot read table inet fw");
  assertExplained(relay.log);
  const status = await relay.until(
    "status shows the failure",
    ({ families }) => JSON.stringify(families).includes("SIGSEGV"),
  );
  assertExplained(JSON.stringify(status));
  const healthz = async () => {
    const { stdout } = await node.run("curl", ["-s", "http://127.0.0.1:10256/healthz"]);
    return (JSON.parse(stdout) as { readonly healthy: boolean }).healthy;
  };
  await eventually("health shows it", async () => !await healthz());
  await newerNft(node, "delete table inet fw");
  await eventually("the change is applied", async () => await client.who(VIP) === "pod-b1");
  await eventually("health is good again", healthz);
});

test("a newer nft of another program: doctor and --cleanup name the remedy", async () => {
  await using scene = await RelayScene.create();
  const { node } = scene.cluster;
  await scene.write(webServices(), webSlices("a1"));
  const relay = scene.start(NFTABLES_MODE.args);
  await relay.settled();
  await relay.stop();
  await newerNft(node, FOREIGN);
  const { stdout, stderr } = await node.run(Deno.execPath(), [
    ...["run", "--quiet", "--no-check", "--unstable-net", ...permissionFlags()],
    ...[programFile(new URL("../../main.ts", import.meta.url)), "doctor", "--json"],
    ...["--mode=nftables", `--control-socket=${scene.folder}/control.sock`],
    `--state-dir=${scene.folder}/state`,
  ]);
  assert(stdout.startsWith("{"), stderr);
  assertExplained(JSON.stringify((JSON.parse(stdout) as DoctorReport).findings));
  const failure = await scene.cleanup().then(() => undefined, (error) => `${error}`);
  assert(failure !== undefined, "what is left behind is a failure");
  assertExplained(failure);
  await newerNft(node, "delete table inet fw");
  await scene.cleanup();
  assertEquals(await node.output("nft", ["list", "tables"]), "");
});
