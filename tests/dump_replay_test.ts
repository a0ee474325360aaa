/**
 * A dump of one machine, replayed on another, gives byte for byte the rules of the first: in each
 * mode, with a complete kernel and with one that lacks features.
 */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { askControlText } from "../lib/tools/control/control_client.ts";
import { INPUT_PART } from "../lib/tools/dump/dump_schema.ts";
import { checkDump } from "../lib/tools/dump/read_dump.ts";
import type { Service } from "../lib/api/kinds/service.ts";
import type { CommandRunner } from "../lib/os/command_runner.ts";
import type { BackendMode } from "../lib/proxy/backend.ts";
import { runInProcess } from "./support/drivers/command_line.ts";
import { ADDRESSES } from "./support/builders/address_plan.ts";
import { testEndpointSlice, testNode, testService } from "./support/builders/builders.ts";
import { eventually } from "./support/eventually.ts";
import { DumpedRelay, withoutHeading } from "./support/stages/dumped_relay.ts";
import { FakeCommandRunner } from "./support/fakes/fake_command_runner.ts";
import { FakeIptablesMachine } from "./support/fakes/fake_iptables_machine.ts";
import { FakeIpvsMachine } from "./support/fakes/fake_ipvs_machine.ts";
import { FakeNftMachine } from "./support/fakes/fake_nft_machine.ts";
import { manifestText, rawObjects } from "./support/builders/raw_objects.ts";

const SCENARIOS = new URL("./golden/scenarios/", import.meta.url).pathname;
const { IPv4 } = ADDRESSES;

/** A machine, and words that its rules have to have since it is as it is. */
interface ReplayCase {
  readonly name: string;
  readonly mode: BackendMode;
  readonly commands: () => CommandRunner;
  readonly flags?: readonly string[];
  readonly shows: string;
}

const CASES: readonly ReplayCase[] = [
  {
    name: "userspace",
    mode: "userspace",
    commands: () => new FakeCommandRunner().on("", { code: 127 }),
    shows: `${IPv4.nodeSecond}:30`,
  },
  {
    name: "iptables with everything",
    mode: "iptables",
    commands: () => furnish(new FakeIptablesMachine().commands),
    shows: "--comment",
  },
  {
    name: "iptables without statistic and with liberal connection tracking",
    mode: "iptables",
    commands() {
      const machine = new FakeIptablesMachine();
      machine.judge = (line) => line.includes("-m statistic") ? "No such file" : undefined;
      return furnish(machine.commands).on("sysctl net.netfilter.nf_conntrack_tcp_be_liberal", {
        stdout: "net.netfilter.nf_conntrack_tcp_be_liberal = 1\n",
      });
    },
    flags: ["--masquerade-all", "--iptables-masquerade-bit=7"],
    shows: "# Left out:",
  },
  {
    name: "nftables with everything",
    mode: "nftables",
    commands: () => furnish(new FakeNftMachine().commands),
    flags: ["--cluster-cidr=10.0.0.0/8"],
    shows: "reject",
  },
  {
    name: "nftables without maps that rules fill",
    mode: "nftables",
    commands() {
      const machine = new FakeNftMachine();
      machine.judge = (line) => line.includes("@clients") ? "No such file" : undefined;
      return furnish(machine.commands);
    },
    shows: "# Left out:",
  },
  {
    name: "ipvs",
    mode: "ipvs",
    commands: () => furnish(new FakeIpvsMachine().commands),
    flags: ["--ipvs-scheduler=lc"],
    shows: "-s lc",
  },
];

/** Provides programs that exist and do nothing relevant. */
function furnish(commands: FakeCommandRunner): FakeCommandRunner {
  return ["choom", "conntrack", "nproc", "sysctl"].reduce(
    (furnished, program) => furnished.on(program, { code: 1 }),
    commands,
  );
}

/** Files of all scenarios, with the own Node in each. */
async function writeObjects(folder: string): Promise<readonly string[]> {
  const node = `${folder}/node.json`;
  await Deno.writeTextFile(node, manifestText(rawObjects("Node", testNode())));
  const paths = await Array.fromAsync(Deno.readDir(SCENARIOS), ({ name }) => SCENARIOS + name);
  return [node, ...paths.sort()];
}

/**
 * Returns the output of `render --from` on a machine with another name and user, and without
 * programs.
 */
async function replay(path: string): Promise<string> {
  const env = (name: string) => name === "XDG_RUNTIME_DIR" ? "/run/user/4242" : undefined;
  const process = { hostname: "desk", uid: 4242, env };
  const { out, err } = await runInProcess(["render", "--from", path], { process });
  return out === "" ? err : withoutHeading(out);
}

Deno.test("render --from follows a node whose Services are added, changed and removed", async () => {
  const folder = await Deno.makeTempDir();
  const write = (services: readonly Service[]) =>
    Deno.writeTextFile(
      `${folder}/a.json`,
      manifestText([
        ...rawObjects("Node", testNode()),
        ...rawObjects("Service", ...services),
        ...rawObjects("EndpointSlice", testEndpointSlice("one", { endpoints: ["10.180.0.1"] })),
      ]),
    );
  const [one, two] = ["172.30.0.41", "172.30.0.42"].map((clusterIP, index) =>
    testService(`ns1/${["one", "two"][index]}`, { clusterIP })
  );
  const ports = [{ name: "b", port: 81 }, { name: "a", port: 80 }];
  const grown = testService("ns1/one", { clusterIP: "172.30.0.41", ports });
  try {
    await write([one!, two!]);
    await using relay = await DumpedRelay.start({
      mode: "nftables",
      commands: furnish(new FakeNftMachine().commands),
      flags: [`--manifests=${folder}/a.json`],
    });
    for (const services of [[two!], [two!, grown], [one!, two!]]) {
      const before = relay.text();
      await write(services);
      await eventually("the rules are others", () => relay.text() !== before);
      await relay.settled();
      await Deno.writeTextFile(`${folder}/dump`, await relay.dump());
      assertEquals(await replay(`${folder}/dump`), relay.text());
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

/** Returns the answer that `diff` and `trace` request, without the time. */
async function inputsOf({ socket }: DumpedRelay): Promise<unknown> {
  const { writtenAt: _, ...inputs } = JSON.parse(
    await askControlText(socket, "/dump", { inputs: "" }),
  );
  return inputs;
}

/** The same of a dump that has everything. */
function inputPartOf(dump: unknown): unknown {
  const { writtenAt: _, ...inputs } = checkDump(dump, "it", INPUT_PART);
  return inputs;
}

for (const { name, mode, commands, flags = [], shows } of CASES) {
  Deno.test(`render --from prints the rules that the node computed: ${name}`, async () => {
    const folder = await Deno.makeTempDir();
    try {
      const manifests = await writeObjects(folder);
      await using relay = await DumpedRelay.start({
        mode,
        commands: commands(),
        flags: [`--manifests=${manifests.join(",")}`, ...flags],
        addresses: [IPv4.node, IPv4.nodeSecond],
      });
      const path = `${folder}/other place.json`;
      const dump = await relay.dump();
      await Deno.writeTextFile(path, dump);
      const text = relay.text();
      assertStringIncludes(text, shows);
      assertEquals(await inputsOf(relay), inputPartOf(JSON.parse(dump)));
      assertEquals(await replay(path), text);
    } finally {
      await Deno.remove(folder, { recursive: true });
    }
  });
}
