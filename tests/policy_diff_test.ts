/**
 * `kube-relay diff` and the rules of NetworkPolicies of a running process: differences, repairs, the
 * change log, and a dump.
 */
import { assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { changesReport } from "../lib/tools/changes/changes_view.ts";
import { paintText } from "../lib/tools/report.ts";
import { askControl } from "../lib/tools/control/control_client.ts";
import type { CommandRunner } from "../lib/os/command_runner.ts";
import { runInProcess } from "./support/drivers/command_line.ts";
import { ADDRESSES } from "./support/builders/address_plan.ts";
import { testNode } from "./support/builders/builders.ts";
import { manifestText, rawObjects } from "./support/builders/raw_objects.ts";
import { FakeNftMachine } from "./support/fakes/fake_nft_machine.ts";
import { DumpedRelay } from "./support/stages/dumped_relay.ts";
import { onlyFrom, rawPod } from "./support/stages/policy_relay.ts";

const [WEB, FRIEND] = ADDRESSES.IPv4.localPods;
const TABLE = "ip kube-relay-policy";

function diff(commands: CommandRunner, ...argv: readonly string[]) {
  return runInProcess(["diff", ...argv], { commands });
}

interface Scene {
  readonly machine: FakeNftMachine;
  readonly socket: string;
  readonly flag: string;
  readonly dump: string;
  /** The same dump of a node that found no tool. */
  readonly dumpWithoutTool: string;
}

/** A kube-relay that enforces one policy by nftables, and its dump. */
async function withPolicies(run: (scene: Scene) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    const objects = [
      ...rawObjects("Node", testNode()),
      rawPod("web", WEB, { app: "web" }),
      rawPod("friend", FRIEND, { app: "friend" }),
      onlyFrom("friend"),
    ];
    await Deno.mkdir(`${folder}/manifests`);
    await Deno.writeTextFile(`${folder}/manifests/all.yaml`, manifestText(objects));
    const machine = new FakeNftMachine();
    for (const program of ["choom", "conntrack", "nproc", "sysctl"]) {
      machine.commands.on(program, { code: 1 });
    }
    await using relay = await DumpedRelay.start({
      mode: "nftables",
      commands: machine.commands,
      flags: [`--manifests=${folder}/manifests`, "--cluster-cidr=10.0.0.0/8", "--network-policy"],
      addresses: [ADDRESSES.IPv4.node],
    });
    const dump = `${folder}/node.json`;
    const text = await relay.dump();
    await Deno.writeTextFile(dump, text);
    const value = JSON.parse(text);
    delete value.controllers["network-policy"].tool;
    await Deno.writeTextFile(`${dump}.2`, JSON.stringify(value));
    const { socket } = relay;
    await run({
      ...{ machine, socket, flag: `--control-socket=${socket}` },
      ...{ dump: `--from=${dump}`, dumpWithoutTool: `--from=${dump}.2` },
    });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

/** Another program removes the only member of the set of peers. */
function removePeer(machine: FakeNftMachine): void {
  const { elements } = machine.tool.table(TABLE);
  const peers = [...elements].find(([name, { size }]) => name.startsWith("peers-") && size > 0);
  peers![1].clear();
}

Deno.test("diff reports rules of NetworkPolicies that differ, repairs them and logs the repair", () =>
  withPolicies(async ({ machine, socket, flag, dump }) => {
    const clean = await diff(machine.commands, flag);
    assertEquals([clean.code, clean.err], [0, ""]);
    assertStringIncludes(
      clean.out,
      "IPv4                 as planned\nnetwork-policy IPv4  as planned\n",
    );
    removePeer(machine);
    for (const from of [flag, dump]) {
      const { code, out } = await diff(machine.commands, from);
      assertEquals(code, 3);
      assertStringIncludes(out, "network-policy IPv4, For all NetworkPolicies\n");
      assertStringIncludes(out, `  missing  set element peers-`);
      assertStringIncludes(out, `             wanted ${FRIEND}\n`);
    }
    const { differences, families } = JSON.parse(
      (await diff(machine.commands, flag, "--json")).out,
    );
    const [services, policies] = families;
    assertEquals([differences, services.controller, services.differences], [1, undefined, []]);
    assertEquals([policies.controller, policies.family], ["network-policy", "IPv4"]);
    const repaired = await diff(machine.commands, flag, "--repair");
    assertEquals([repaired.code, repaired.err], [0, ""]);
    assertStringIncludes(repaired.out, "network-policy IPv4  1 difference, of which 1 repaired\n");
    assertEquals((await diff(machine.commands, flag)).code, 0);
    const changes = await askControl(socket, "/changes");
    const text = paintText(changesReport(changes, { timeZone: "UTC" }), { columns: 160 });
    assertStringIncludes(text, "network-policy: REPAIR by a user, with 'kube-relay diff --repair'");
    assertStringIncludes(text, "1 of 1 set element repaired");
  }));

Deno.test("diff --family compares the rules of NetworkPolicies in that family", () =>
  withPolicies(async ({ machine, socket, flag }) => {
    removePeer(machine);
    assertEquals((await diff(machine.commands, flag, "--family=ipv4")).code, 3);
    const ask = () => askControl(socket, "/difference", { family: "IPv5" });
    await assertRejects(ask, Error, "expected one of IPv4, IPv6");
  }));

Deno.test("diff --from compares no rules of NetworkPolicies of a node without a tool", () =>
  withPolicies(async ({ machine, dumpWithoutTool }) => {
    removePeer(machine);
    const { code, out } = await diff(machine.commands, dumpWithoutTool);
    assertEquals([code, out.includes("network-policy")], [0, false], out);
  }));
