import { assertEquals, assertStringIncludes } from "@std/assert";
import { fakeHostChecks } from "../../../../tests/support/fakes/fake_host_checks.ts";
import { FakeClock } from "../../../../tests/support/fakes/fake_clock.ts";
import { FakeCommandRunner } from "../../../../tests/support/fakes/fake_command_runner.ts";
import { FakeNetwork } from "../../../../tests/support/fakes/fake_network.ts";
import { testStatusReport } from "../../../../tests/support/builders/status_reports.ts";
import type { Backend } from "../../../proxy/backend.ts";
import type { CleanupReport } from "../../../engine/data_plane.ts";
import { KUBE_PROXY_ALIVE, type KubeProxyRemovalOptions } from "../../../proxy/host_checks.ts";
import { runCommandLine } from "../command_line.ts";
import { startControlServer } from "../../control/control_server.ts";
import { machineOf, testDependencies } from "../../../../tests/support/fakes/test_dependencies.ts";

const NOTHING: CleanupReport = { removed: [], failed: [] };

interface Machine {
  readonly ours?: CleanupReport;
  readonly other?: CleanupReport;
  readonly alive?: boolean;
}

/** Runs `cleanup` with these flags; `done` are the steps in their order. */
async function cleanUp(flags: readonly string[], machine: Machine = {}) {
  const { ours = NOTHING, other = NOTHING, alive = false } = machine;
  const done: string[] = [];
  const texts = { out: "", err: "" };
  const asked: KubeProxyRemovalOptions[] = [];
  const step = (name: string) => () => {
    done.push(name);
    return Promise.resolve(ours);
  };
  const backend = {
    cleanup: step("cleanup"),
    previewCleanup: step("preview"),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  } as unknown as Backend;
  const finding = {
    id: KUBE_PROXY_ALIVE,
    severity: "blocking",
    summary: "A kube-proxy runs",
    evidence: ["127.0.0.1:10249 says iptables"],
  } as const;
  const dependencies = testDependencies({
    clock: new FakeClock(),
    network: new FakeNetwork(),
    commands: new FakeCommandRunner(),
    backends: { userspace: () => backend },
    hostChecks: {
      ...fakeHostChecks({ findings: alive ? [finding] : [] }),
      removeKubeProxy(options) {
        done.push("other");
        asked.push(options);
        return Promise.resolve(other);
      },
    },
    process: { hostname: "node-a" },
    print: (text) => void (texts.out += text),
    complain: (text) => void (texts.err += text),
  });
  const code = await runCommandLine(
    machineOf(dependencies),
    ["--cleanup", "--state-dir=/nonexistent", "--control-socket=/nonexistent/socket", ...flags],
    () => new AbortController().signal,
  );
  return { code, done, asked, ...texts };
}

Deno.test("--cleanup removes the objects of kube-relay in each family, then leftovers of kube-proxy", async () => {
  const { code, done, out } = await cleanUp([], {
    ours: { removed: ["address A"], failed: [] },
    other: { removed: ["chain B"], failed: [], kept: ["chain C: D refers to it"] },
  });
  assertEquals({ code, done }, { code: 0, done: ["cleanup", "cleanup", "other"] });
  assertStringIncludes(out, "removed address A\n");
  assertStringIncludes(out, "removed chain B\nleft chain C: D refers to it\n");
});

Deno.test("--cleanup reports it when there was nothing", async () => {
  assertStringIncludes((await cleanUp([])).out, "Nothing of kube-relay's or kube-proxy's is left");
});

Deno.test("--cleanup exits with 1 when something could not be removed", async () => {
  const { code, err } = await cleanUp([], { other: { removed: [], failed: ["set X: in use"] } });
  assertEquals(code, 1);
  assertEquals(err, "Cannot remove set X: in use\n");
});

Deno.test("--cleanup --dry-run changes nothing and prints the commands", async () => {
  const { code, done, asked, out } = await cleanUp(["--dry-run"], {
    other: { removed: ["chain B"], failed: [], commands: ["iptables-restore <<'EOF'\nEOF\n"] },
  });
  assertEquals({ code, done }, { code: 0, done: ["preview", "preview", "other"] });
  assertEquals(asked[0]?.dryRun, true);
  assertStringIncludes(out, "would remove chain B\n");
  assertStringIncludes(out, "iptables-restore <<'EOF'\n");
});

Deno.test("--cleanup continues next to a live kube-proxy, which it names", async () => {
  const { code, err, done } = await cleanUp([], { alive: true });
  assertEquals({ code, last: done.at(-1) }, { code: 0, last: "other" });
  assertStringIncludes(err, "A kube-proxy runs and will write its rules again");
  assertStringIncludes(err, "127.0.0.1:10249 says iptables");
});

Deno.test("--cleanup works with a configuration that is wrong, which upstream refuses", async () => {
  const { code, done, err } = await cleanUp(["--cluster-cidr=nonsense", "--dry-run"]);
  assertEquals({ code, done }, { code: 0, done: ["preview", "preview", "other"] });
  assertStringIncludes(err, "nonsense");
  assertStringIncludes(err, "continuing 'cleanup' without the configuration");
});

Deno.test("--cleanup leaves virtual servers of ipvs.excludeCIDRs alone", async () => {
  const { asked } = await cleanUp(["--ipvs-exclude-cidrs=192.0.2.0/24"]);
  assertEquals(asked[0]?.excludeCidrs?.map(String), ["192.0.2.0/24"]);
});

Deno.test("--cleanup removes nothing while a kube-relay runs", async (t) => {
  const folder = await Deno.makeTempDir();
  const path = `${folder}/control.sock`;
  const status = () => Promise.resolve(testStatusReport({ pid: 4711 }));
  const running = await startControlServer({ path, routes: { "/status": status } });
  await t.step("names it and exits with 1", async () => {
    const { code, done, err } = await cleanUp([`--control-socket=${path}`]);
    assertEquals({ code, done }, { code: 1, done: [] });
    assertStringIncludes(err, "Cannot clean up: kube-relay with process id 4711 serves Services");
  });
  await t.step("still lists the removals", async () => {
    const { code, done, err } = await cleanUp([`--control-socket=${path}`, "--dry-run"]);
    assertEquals({ code, last: done.at(-1) }, { code: 0, last: "other" });
    assertStringIncludes(err, "Nothing would be removed now: kube-relay with process id 4711");
  });
  await running.stop();
  await t.step("continues once it has ended", async () => {
    assertEquals((await cleanUp([`--control-socket=${path}`])).code, 0);
  });
  await Deno.remove(folder, { recursive: true });
});

Deno.test("--cleanup forgets which modes have run, once nothing of them is left", async () => {
  const folder = await Deno.makeTempDir();
  const record = `${folder}/modes`;
  const flag = `--state-dir=${folder}`;
  const isThere = () => Deno.stat(record).then(() => true, () => false);
  await Deno.writeTextFile(record, "userspace\n");
  await cleanUp([flag, "--dry-run"]);
  assertEquals(await isThere(), true);
  await cleanUp([flag], { ours: { removed: [], failed: ["address A: in use"] } });
  assertEquals(await isThere(), true);
  await cleanUp([flag]);
  assertEquals(await isThere(), false);
  assertEquals((await cleanUp([flag])).code, 0);
  await Deno.remove(folder, { recursive: true });
});
