/** Tests probes on a real kernel: their results, and that they leave nothing behind. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type { DoctorReport } from "../../lib/tools/doctor/doctor_report.ts";
import { permissionFlags } from "../../lib/os/permissions.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import { eventually } from "../support/eventually.ts";
import { Namespace, netnsRequirements } from "../support/stages/netns.ts";
import { programFile } from "../support/drivers/program_file.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { isMissing, program, type Requirement } from "../support/requirement.ts";
import { VIP, webServices, webSlices } from "../support/builders/web_service.ts";
import { withFolder } from "../support/with_folder.ts";

const MAIN = programFile(new URL("../../main.ts", import.meta.url));

/** Programs of both iptables worlds, nftables and sets. */
const TOOLS = ["iptables-nft", "iptables-legacy", "ip6tables-legacy", "nft", "ipset", "unshare"];

const ignore = isMissing("probes on a real kernel", [
  ...netnsRequirements(),
  ...TOOLS.map((name): Requirement => program(name)),
]);

/** Returns everything on a machine that a probe could change, without counters and times. */
async function contents(namespace: Namespace): Promise<Record<string, string>> {
  const commands: readonly (readonly [string, ...string[]])[] = [
    ["nft", "list", "ruleset"],
    ["iptables-nft-save"],
    ["ip6tables-nft-save"],
    ["iptables-legacy-save"],
    ["ip6tables-legacy-save"],
    ["ipset", "list", "-n"],
    ["ip", "-o", "link"],
    ["ip", "-o", "addr"],
  ];
  const found: Record<string, string> = {};
  for (const [name, ...args] of commands) {
    const text = await namespace.output(name, args);
    found[[name, ...args].join(" ")] = text.replace(/^#.*\n|\[\d+:\d+\]/gm, "");
  }
  return found;
}

interface DoctorRun {
  readonly code: number;
  readonly report: DoctorReport;
}

/** Runs `kube-relay doctor --json` with the executable's own rights. */
async function doctor(namespace: Namespace, by: readonly string[] = []): Promise<DoctorRun> {
  return await withFolder(async (folder) => {
    const line = [...by, ...doctorLine(folder)];
    const { code, stdout, stderr } = await namespace.run(line[0]!, line.slice(1));
    assert(stdout.startsWith("{"), `doctor printed no JSON: ${stderr}${stdout}`);
    return { code, report: JSON.parse(stdout) as DoctorReport };
  });
}

function doctorLine(folder: string): readonly string[] {
  return [
    ...[Deno.execPath(), "run", "--quiet", "--no-check", "--unstable-net", ...permissionFlags()],
    ...[MAIN, "doctor", "--json", "--mode=auto"],
    ...[`--control-socket=${folder}/control.sock`, `--state-dir=${folder}`],
  ];
}

function modeOf({ report }: DoctorRun, mode: string) {
  const found = report.modes.find((each) => each.mode === mode)!;
  const missing = found.features.filter(({ available, required }) => !available && required);
  return { ...found, missing: missing.map(({ feature }) => feature) };
}

/** Hides programs in a mount namespace of its own: empty files that may not be run. */
function without(...programs: readonly string[]): readonly string[] {
  const hide = programs.map((name) =>
    `for f in $(which -a ${name}); do mount --bind /dev/null "$f"; done`
  );
  return ["unshare", "--mount", "sh", "-c", `${hide.join("; ")}; exec "$@"`, "sh"];
}

/** Has the legacy tables made: only a namespace that goes takes them away again. */
async function makeLegacyTables(namespace: Namespace): Promise<void> {
  for (const family of ["iptables", "ip6tables"]) {
    for (const table of ["nat", "filter", "mangle"]) {
      await namespace.output(`${family}-legacy`, ["-w", "-t", table, "-S"]);
    }
  }
}

Deno.test(
  { name: "doctor finds what a kernel has and leaves nothing behind", ignore },
  async () => {
    await using namespace = await Namespace.create("doctor");
    const before = await contents(namespace);
    const run = await doctor(namespace);
    assertEquals(await contents(namespace), before);
    assertEquals(modeOf(run, "nftables").families, ["IPv4", "IPv6"]);
    assertEquals(modeOf(run, "iptables").families, ["IPv4", "IPv6"]);
    const [iptables] = modeOf(run, "iptables").features;
    assertStringIncludes(iptables!.detail, "(nf_tables)");
  },
);

Deno.test({
  name: "the first signal ends doctor while it waits for an API server that does not answer",
  ignore: ignore || isMissing("a silent server", [program("socat")]),
}, () =>
  withFolder(async (folder) => {
    await using namespace = await Namespace.create("signal");
    await namespace.output("ip", ["link", "set", "lo", "up"]);
    const before = await contents(namespace);
    namespace.start("socat", ["TCP4-LISTEN:6443,bind=127.0.0.1", "SYSTEM:cat >/dev/null"]);
    const isListed = (state: string) =>
      eventually(`a socket is ${state}`, async () =>
        await namespace.output("ss", ["-Htn", "state", state, "src", "127.0.0.1:6443"]) !== "");
    await isListed("listening");
    const [command, ...args] = [...doctorLine(folder), "--master=http://127.0.0.1:6443"];
    const relay = namespace.start(command!, args);
    await isListed("established");
    relay.signal("SIGTERM");
    assertEquals((await relay.status()).code, 143, relay.errors);
    assertEquals(await contents(namespace), before);
  }));

Deno.test({ name: "doctor leaves rules and sets of others as they are", ignore }, async () => {
  await using namespace = await Namespace.create("others");
  await namespace.output("iptables-nft", ["-t", "nat", "-N", "FOREIGN"]);
  await namespace.output("iptables-nft", ["-t", "nat", "-A", "FOREIGN", "-j", "MASQUERADE"]);
  await namespace.output("nft", ["add", "table", "ip", "foreign"]);
  await namespace.output("ipset", ["create", "foreign", "hash:ip"]);
  const before = await contents(namespace);
  await doctor(namespace);
  assertEquals(await contents(namespace), before);
});

Deno.test({
  name: "doctor tries iptables-legacy if the kubelet uses it, and leaves nothing",
  ignore,
}, async () => {
  await using namespace = await Namespace.create("legacy");
  await makeLegacyTables(namespace);
  await namespace.output("iptables-legacy", ["-w", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"]);
  await namespace.output("ip6tables-legacy", ["-w", "-t", "mangle", "-N", "KUBE-KUBELET-CANARY"]);
  const before = await contents(namespace);
  const run = await doctor(namespace);
  assertEquals(await contents(namespace), before);
  const { families, features } = modeOf(run, "iptables");
  assertEquals(families, ["IPv4", "IPv6"]);
  for (const { detail } of features.filter(({ feature }) => feature === "iptables")) {
    assertStringIncludes(detail, "(legacy); the kubelet left its chain there");
  }
});

Deno.test(
  { name: "doctor removes what a killed probe left in legacy tables", ignore },
  async () => {
    await using namespace = await Namespace.create("left");
    await makeLegacyTables(namespace);
    await namespace.output("iptables-legacy", ["-w", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"]);
    const before = await contents(namespace);
    for (const args of [["-N", "KUBE-RELAY-PROBE"], ["-A", "KUBE-RELAY-PROBE", "-j", "ACCEPT"]]) {
      await namespace.output("iptables-legacy", ["-w", "-t", "nat", ...args]);
    }
    await doctor(namespace);
    assertEquals(await contents(namespace), before);
  },
);

Deno.test({ name: "doctor tells which tool is hidden, and what that costs", ignore }, async () => {
  await using namespace = await Namespace.create("hidden");
  const noNft = await doctor(namespace, without("nft"));
  assertEquals(modeOf(noNft, "nftables").missing, ["nft"]);
  assertEquals(modeOf(noNft, "iptables").families, ["IPv4", "IPv6"]);
  const iptables = ["iptables", "ip6tables"].flatMap((name) =>
    ["", "-nft", "-legacy"].map((variant) => `${name}${variant}-restore`)
  );
  const onlyNft = await doctor(namespace, without(...iptables));
  assertEquals(modeOf(onlyNft, "nftables").families, ["IPv4", "IPv6"]);
  assertEquals(modeOf(onlyNft, "iptables").families, []);
});

Deno.test({ name: "doctor says once that it lacks the right to try", ignore }, async () => {
  await using namespace = await Namespace.create("rights");
  const drop = "--bounding-set=-net_admin,-net_raw";
  const run = await doctor(namespace, ["setpriv", drop, "--inh-caps=-all"]);
  for (const mode of ["nftables", "iptables"]) {
    const lacks = modeOf(run, mode).features.filter(({ required, available }) =>
      required && !available
    );
    assertEquals(lacks.map(({ detail }) => detail), ["not permitted (needs root / CAP_NET_ADMIN)"]);
  }
});

/** Has another program stand for nft that says an old version, and is nft otherwise. */
async function withOldNft(folder: string): Promise<readonly string[]> {
  const old = `${folder}/nft`;
  const path = (await new Deno.Command("sh", { args: ["-c", "readlink -f $(command -v nft)"] })
    .output()).stdout;
  const real = new TextDecoder().decode(path).trim();
  await Deno.copyFile(real, `${folder}/real-nft`);
  await Deno.writeTextFile(
    old,
    `#!/bin/sh\n[ "$1" = --version ] && { echo "nftables v1.0.0 (old)"; exit; }\n` +
      `exec ${folder}/real-nft "$@"\n`,
    { mode: 0o755 },
  );
  return ["unshare", "--mount", "sh", "-c", `mount --bind ${old} ${real}; exec "$@"`, "sh"];
}

Deno.test({
  name: "an nft that is too old ends nftables mode with its version, and auto continues without it",
  ignore,
}, async () => {
  await using scene = await RelayScene.create();
  await scene.write(webServices(), webSlices("a1"));
  const by = await withOldNft(scene.folder);
  const missing = "nft: version 1.0.0 is older than 1.0.1";
  const refused = scene.start(["--mode=nftables"], { by });
  assertEquals(await refused.ended(), 1);
  assertStringIncludes(refused.log, missing);
  assertStringIncludes(refused.log, "nftables");
  assertEquals(await scene.cluster.node.output("nft", ["list", "ruleset"]), "");
  const auto = scene.start(["--mode=auto"], { by });
  const { families } = await auto.settled();
  assert(families.every(({ mode }) => mode !== "nftables"));
  assertStringIncludes(auto.log, missing);
  const client = ProbeClient.start(scene.cluster.client);
  assertEquals(await client.who(VIP), "pod-a1");
  await auto.stop();
});
