/**
 * `kube-relay diff` as a command line: of a running process and its kernel, and of other objects.
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { askControl, askControlText } from "../lib/tools/control/control_client.ts";
import type { CommandRunner } from "../lib/os/command_runner.ts";
import {
  type CommandLineResult,
  NO_COMMANDS,
  runInProcess,
} from "./support/drivers/command_line.ts";
import { ADDRESSES } from "./support/builders/address_plan.ts";
import { testEndpointSlice, testNode, testService } from "./support/builders/builders.ts";
import { eventually } from "./support/eventually.ts";
import { DumpedRelay } from "./support/stages/dumped_relay.ts";
import { FakeNftMachine } from "./support/fakes/fake_nft_machine.ts";
import { manifestText, rawObjects } from "./support/builders/raw_objects.ts";

const { IPv4 } = ADDRESSES;

function diff(commands: CommandRunner, ...argv: readonly string[]): Promise<CommandLineResult> {
  return runInProcess(["diff", ...argv], { commands });
}

function objects(endpoints: readonly string[]): string {
  return manifestText([
    ...rawObjects("Node", testNode()),
    ...rawObjects("Service", testService("shop/web", { ports: [{ name: "http", port: 80 }] })),
    ...rawObjects(
      "EndpointSlice",
      testEndpointSlice("shop/web", { endpoints, ports: [{ name: "http", port: 8080 }] }),
    ),
  ]);
}

interface Scene {
  readonly machine: FakeNftMachine;
  readonly socket: string;
  readonly folder: string;
}

/** A kube-relay in nftables mode, its machine, a folder with other objects, and a dump. */
async function withRelay(
  run: (scene: Scene) => Promise<void>,
  prepare: (machine: FakeNftMachine) => void = () => {},
  commandsOf: (machine: FakeNftMachine, folder: string) => CommandRunner = (machine) =>
    machine.commands,
): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    for (const name of ["old", "new"]) await Deno.mkdir(`${folder}/${name}`);
    const [first, second] = IPv4.remotePods;
    await Deno.writeTextFile(`${folder}/old/all.yaml`, objects([first, second]));
    await Deno.writeTextFile(`${folder}/new/all.yaml`, objects([first]));
    const machine = new FakeNftMachine();
    prepare(machine);
    for (const program of ["choom", "conntrack", "nproc", "sysctl"]) {
      machine.commands.on(program, { code: 1 });
    }
    await using relay = await DumpedRelay.start({
      mode: "nftables",
      commands: commandsOf(machine, folder),
      flags: [`--manifests=${folder}/old`, "--cluster-cidr=10.0.0.0/8"],
      addresses: [IPv4.node],
    });
    await Deno.writeTextFile(`${folder}/node.json`, await relay.dump());
    await run({ machine, folder, socket: `--control-socket=${relay.socket}` });
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

function damage(machine: FakeNftMachine): void {
  const { elements } = machine.tool.table("ip kube-relay");
  for (const key of elements.get("endpoints")?.keys().take(1) ?? []) {
    elements.get("endpoints")?.delete(key);
  }
}

Deno.test("diff exits with 0 without differences and with 3 otherwise, and repairs them", () =>
  withRelay(async ({ machine, socket }) => {
    const ask = (...argv: readonly string[]) => diff(machine.commands, socket, ...argv);
    const clean = await ask();
    assertEquals([clean.code, clean.err], [0, ""]);
    assertStringIncludes(clean.out, "The machine is as planned");
    damage(machine);
    const damaged = await ask();
    assertEquals(damaged.code, 3);
    assertStringIncludes(damaged.out, "shop/web:http TCP\n  missing  map element endpoints");
    assertStringIncludes(damaged.out, "1 difference; 'kube-relay diff --repair' repairs it\n");
    assertEquals(JSON.parse((await ask("--json")).out).differences, 1);
    assertEquals((await ask("--service=shop/web")).code, 3);
    const repaired = await ask("--repair");
    assertEquals(repaired.code, 0);
    assertStringIncludes(repaired.out, "1 difference, of which 1 repaired");
    assertEquals((await ask()).code, 0);
  }));

Deno.test("diff --repair adds an entry to the change log of the running process, and a look does not", () =>
  withRelay(async ({ machine, socket }) => {
    const path = socket.replace("--control-socket=", "");
    const repairs = async () => {
      const { entries } = await askControl(path, "/changes");
      return entries.flatMap((entry) => entry.kind === "repair" ? [entry] : []);
    };
    await diff(machine.commands, socket, "--repair");
    damage(machine);
    await diff(machine.commands, socket);
    assertEquals(await repairs(), []);
    assertEquals((await diff(machine.commands, socket, "--repair")).err, "");
    const [repair, ...others] = await repairs();
    assertEquals(others, []);
    assertEquals([repair!.family, repair!.lines.map(({ text }) => text)], [
      "IPv4",
      ["REPAIR by a user, with 'kube-relay diff --repair': 1 of 1 map element repaired"],
    ]);
    assert(repair!.tookMs! > 0);
    damage(machine);
    machine.judge = (line) => line.includes(". tcp . 80") ? "No space left on device" : undefined;
    const { code, out } = await diff(machine.commands, socket, "--repair");
    assertEquals(code, 1);
    assertStringIncludes(out, "IPv4  1 difference, of which 0 repaired\n");
    assertStringIncludes(out, "No space left on device");
    const [refused, verdict] = out.trimEnd().split("\n").slice(-2);
    assertEquals(refused, "shop/web:http TCP could not be repaired and is in quarantine now");
    assertEquals(verdict, "All is as planned now, except for the quarantine");
    const last = (await repairs()).at(-1)!;
    assertStringIncludes(last.lines[0]!.text, "0 of 1 map element repaired");
    const again = await diff(machine.commands, socket, "--repair");
    assertEquals(again.code, 0, "it has been in quarantine before");
  }));

Deno.test("diff --repair is refused if other users may open the control socket, and a look is not", () =>
  withRelay(async ({ machine, socket }) => {
    damage(machine);
    const path = socket.replace("--control-socket=", "");
    await Deno.chmod(path, 0o660);
    const { code, err } = await diff(NO_COMMANDS, socket, "--repair");
    assertEquals(code, 1);
    assertStringIncludes(err, "users other than its owner may open it");
    assertEquals((await diff(NO_COMMANDS, socket)).code, 3);
    await Deno.chmod(path, 0o600);
    await Deno.chown(path, 65534, null);
    assertEquals((await diff(NO_COMMANDS, socket, "--repair")).code, 1);
    assertEquals((await diff(NO_COMMANDS, socket)).code, 3);
    await Deno.chown(path, Deno.uid(), null);
    assertEquals((await diff(NO_COMMANDS, socket, "--repair")).code, 0);
  }));

Deno.test("of two simultaneous repairs, one repairs and the other finds nothing to do", () =>
  withRelay(async ({ machine, socket }) => {
    damage(machine);
    const both = await Promise.all([1, 2].map(() => diff(NO_COMMANDS, socket, "--repair")));
    assertEquals(both.map(({ code, err }) => [code, err]), [[0, ""], [0, ""]]);
    const { entries } = await askControl(socket.replace("--control-socket=", ""), "/changes");
    const repairs = entries.filter(({ kind }) => kind === "repair");
    assertEquals(repairs.map(({ lines }) => lines[0]!.text), [
      "REPAIR by a user, with 'kube-relay diff --repair': 1 of 1 map element repaired",
    ]);
  }));

Deno.test("diff reports the quarantine, counts it as no difference, and never writes it", async () => {
  const [bad = ""] = IPv4.remotePods;
  const refuse = (machine: FakeNftMachine) => {
    machine.judge = (line) => line.includes(bad) ? "No space left on device" : undefined;
  };
  await withRelay(async ({ machine, folder, socket }) => {
    for (const flags of [[socket], [socket, "--repair"], [`--from=${folder}/node.json`]]) {
      const { code, out, err } = await diff(machine.commands, ...flags);
      assertEquals([code, err], [0, ""], flags.join());
      assertStringIncludes(out, "  shop/web:http TCP: The kernel refused ");
      assertMatch(out, /\n {4}(tried again in \d+s, from [\d:]+ on|to be tried again since .*)\n/);
      assertMatch(out, /as planned( now)?, except for the quarantine\n$/);
      assertEquals(out.split("\n").filter((line) => line.length > 80), []);
    }
    const { code, out } = await diff(machine.commands, socket, "--json");
    const { differences, families } = JSON.parse(out);
    assertEquals([code, differences, families[0].differences], [0, 0, []]);
    const [{ service, servicePort, retryAt }] = families[0].quarantined;
    assertEquals([service, servicePort], ["shop/web", "shop/web:http/TCP"]);
    assertEquals(new Date(retryAt).toISOString(), retryAt);
    const tableOf = () => machine.tool.table("ip kube-relay");
    assertEquals(tableOf().elements.get("service-ips")?.size, 0);
    // The process repairs the damage by itself when it tries the refused Service again.
    await eventually("shared rules that are missing are reported", async () => {
      tableOf().chains.set("services", []);
      return (await diff(machine.commands, socket)).code === 3;
    });
    const repaired = await diff(machine.commands, socket, "--repair");
    assertEquals([repaired.code, repaired.err], [0, ""]);
    assertEquals(tableOf().elements.get("service-ips")?.size, 0);
  }, refuse);
});

/** Has the process sync other endpoints at the moment in which its table is read for the first time. */
function syncingMeanwhile(
  { machine, folder }: Pick<Scene, "machine" | "folder">,
  endpoints: readonly string[],
): { readonly commands: CommandRunner; readonly looks: () => number } {
  let looks = 0;
  const commands: CommandRunner = {
    async run(program, args, options) {
      const isLook = `${program} ${args.join(" ")}`.startsWith("nft --debug=netlink --numeric");
      if (isLook && ++looks === 1) {
        await Deno.writeTextFile(`${folder}/old/all.yaml`, objects(endpoints));
        await eventually("the process has synced", () => {
          const { elements } = machine.tool.table("ip kube-relay");
          return elements.get("endpoints")?.size === endpoints.length;
        });
      }
      return await machine.commands.run(program, args, options);
    },
  };
  return { commands, looks: () => looks };
}

Deno.test("diff looks again when the process synced meanwhile", async () => {
  const endpoints = IPv4.remotePods.slice(0, 1);
  let looks = () => 0;
  await withRelay(
    async ({ socket }) => {
      const { code, err } = await diff(NO_COMMANDS, socket);
      assertEquals([code, err], [0, ""]);
      assertEquals(looks() > 1, true);
    },
    undefined,
    (machine, folder) => {
      const meanwhile = syncingMeanwhile({ machine, folder }, endpoints);
      looks = meanwhile.looks;
      return meanwhile.commands;
    },
  );
});

Deno.test("diff runs no tool by itself: the process that serves has its machine at hand", () =>
  withRelay(async ({ machine, socket }) => {
    damage(machine);
    assertEquals((await diff(NO_COMMANDS, socket)).code, 3);
    assertEquals((await diff(NO_COMMANDS, socket, "--repair", "--service=shop/web")).code, 2);
    assertEquals((await diff(NO_COMMANDS, socket)).code, 3, "nothing was repaired");
    assertEquals((await diff(NO_COMMANDS, socket, "--repair")).code, 0);
    const { code, err } = await diff(NO_COMMANDS, socket, "--service=shop/wep");
    assertEquals(code, 1);
    assertStringIncludes(err, "none of 1 has this name; did you mean 'shop/web'?");
    assertEquals((await diff(NO_COMMANDS, socket, "--service=web")).code, 2);
  }));

Deno.test("diff --from compares the machine with a dump, without a running kube-relay", () =>
  withRelay(async ({ machine, folder }) => {
    const from = `--from=${folder}/node.json`;
    assertEquals((await diff(machine.commands, from)).code, 0);
    damage(machine);
    const { code, out } = await diff(machine.commands, from);
    assertEquals([code, out.endsWith("\n1 difference\n")], [3, true], "nothing can repair it");
  }));

Deno.test("diff --manifests reports the changes, and asks nothing of the machine", () =>
  withRelay(async ({ folder, socket }) => {
    const gone = `${IPv4.remotePods[1]}:8080`;
    const ask = (...argv: readonly string[]) => diff(NO_COMMANDS, ...argv);
    const same = await ask(socket, `--manifests=${folder}/old`);
    assertEquals([same.code, same.err], [0, ""]);
    assertStringIncludes(same.out, "Nothing would change");
    for (const before of [socket, `--from=${folder}/node.json`]) {
      const { code, out } = await ask(before, `--manifests=${folder}/new`);
      assertEquals(code, 3);
      assertStringIncludes(out, "  changed  shop/web:http TCP\n");
      assertStringIncludes(out, `  endpoint ${gone} gone\n`);
    }
    const { out } = await ask(socket, `--manifests=${folder}/new`, "--json");
    const { changes, families } = JSON.parse(out);
    assertEquals([changes, families[0].changes[0].kind], [1, "changed"]);
  }));

Deno.test("diff --manifests knows that the Service that is there first keeps its address", () =>
  withRelay(async ({ folder, socket }) => {
    const rival = (clusterIP: string) =>
      manifestText([
        ...rawObjects("Service", testService("a/rival", { clusterIP })),
        ...rawObjects("EndpointSlice", testEndpointSlice("a/rival", { endpoints: ["10.1.0.9"] })),
      ]);
    const next = `${folder}/next`;
    await Deno.mkdir(next);
    await Deno.copyFile(`${folder}/old/all.yaml`, `${next}/all.yaml`);
    await Deno.writeTextFile(`${next}/a.yaml`, rival(IPv4.clusterIp));
    await Deno.utime(`${next}/a.yaml`, 0, 0);
    const { out } = await diff(NO_COMMANDS, socket, `--manifests=${next}`, "--json");
    const { changes, families } = JSON.parse(out);
    assertEquals([changes, families[0].changes[0].servicePort], [1, "a/rival/TCP"]);
  }));

Deno.test("diff --manifests knows that an older Service does not get the address of a younger one", () =>
  withRelay(async ({ folder, socket }) => {
    const taken = "172.30.7.7";
    await Deno.writeTextFile(
      `${folder}/old/rival.yaml`,
      manifestText([
        ...rawObjects("Service", testService("z/rival", { clusterIP: taken })),
        ...rawObjects("EndpointSlice", testEndpointSlice("z/rival", { endpoints: ["10.1.0.9"] })),
      ]),
    );
    await eventually(
      "the process has read the younger one",
      async () => (await diff(NO_COMMANDS, socket, `--manifests=${folder}/old`)).code === 0,
    );
    const next = `${folder}/next`;
    await Deno.mkdir(next);
    await Deno.copyFile(`${folder}/old/rival.yaml`, `${next}/rival.yaml`);
    const text = await Deno.readTextFile(`${folder}/old/all.yaml`);
    await Deno.writeTextFile(`${next}/all.yaml`, text.replaceAll(IPv4.clusterIp, taken));
    const changed = async (before: string) => {
      const { out } = await diff(NO_COMMANDS, before, `--manifests=${next}`, "--json");
      const { families } = JSON.parse(out);
      return families[0].changes.map(({ servicePort }: { servicePort: string }) => servicePort);
    };
    assertEquals(await changed(socket), ["shop/web:http/TCP"]);
    // An API server leaves the age of a Service that changes.
    const dump = JSON.parse(
      await askControlText(socket.replace("--control-socket=", ""), "/dump"),
    );
    for (const { metadata } of dump.objects.services) metadata.resourceVersion = "1";
    await Deno.writeTextFile(`${folder}/api.json`, JSON.stringify(dump));
    assertEquals(await changed(`--from=${folder}/api.json`), ["shop/web:http/TCP", "z/rival/TCP"]);
  }));

Deno.test("diff --repair writes only the plan of the running process", async () => {
  for (const flag of ["--from=x", "--manifests=x", "--kubeconfig=x"]) {
    const { code, err } = await diff(NO_COMMANDS, "--repair", flag);
    assertEquals(code, 2, flag);
    assertStringIncludes(err, "a repair only writes the plan of the running process");
  }
});

Deno.test("diff says if no kube-relay is running", async () => {
  const { code, err } = await diff(NO_COMMANDS, "--control-socket=/nowhere/control.sock");
  assertEquals(code, 1);
  assertStringIncludes(err, "no program listens there");
});
