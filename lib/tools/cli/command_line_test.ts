import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import {
  testStatusFamily,
  testStatusReport,
} from "../../../tests/support/builders/status_reports.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { fakeHostChecks } from "../../../tests/support/fakes/fake_host_checks.ts";
import { CommandError } from "../../os/command_runner.ts";
import { type Network, systemNetwork } from "../../os/network.ts";
import type { HostChecks } from "../../proxy/host_checks.ts";
import { startControlServer } from "../control/control_server.ts";
import type { BackendTable, ProcessInfo } from "../../app/dependencies.ts";
import type { StatusReport } from "../status/status_report.ts";
import { runCommandLine, seldomYielding } from "./command_line.ts";
import { VERBS } from "./verbs.ts";
import { withFolder } from "../../../tests/support/with_folder.ts";
import { machineOf, testDependencies } from "../../../tests/support/fakes/test_dependencies.ts";

/** A mode has to be there for the configuration to be right; no test gets as far as making it. */
const BACKENDS: BackendTable = {
  userspace: () => {
    throw new Error("Unexpected backend");
  },
};

interface Result {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** A kubeconfig is read before a mode is chosen. */
const NO_SERVER = "--manifests=/does/not/exist";

async function run(
  argv: readonly string[],
  process: Partial<ProcessInfo> = {},
  { hostChecks = fakeHostChecks(), signal = new AbortController().signal, network }: {
    readonly hostChecks?: HostChecks;
    readonly signal?: AbortSignal;
    readonly network?: Network;
  } = {},
): Promise<Result> {
  const texts = { out: "", err: "" };
  const dependencies = testDependencies({
    ...{ clock: new FakeClock(), backends: BACKENDS, hostChecks },
    process: { hostname: "node-a", ...process },
    ...(network && { network }),
    print: (text) => void (texts.out += text),
    complain: (text) => void (texts.err += text),
  });
  const code = await runCommandLine(machineOf(dependencies), argv, () => signal);
  return { code, ...texts };
}

Deno.test("runCommandLine() prints help for every way of asking, within 80 columns", async () => {
  const help = await run(["--help"]);
  assertEquals([help.code, help.err], [0, ""]);
  for (const verb of ["run", "status", "doctor", "cleanup", "version", "help"]) {
    assertStringIncludes(help.out, `\n  ${verb} `);
  }
  for (const line of help.out.split("\n")) assert(line.length <= 80, line);
  for (const argv of [["-h"], ["help"], ["--help", "help"], ["sttaus", "--help"]]) {
    assertEquals(await run(argv), help, argv.join(" "));
  }
});

Deno.test("runCommandLine() reports usage, operands, flags and examples of each verb, within 80 columns", async () => {
  for (const { name, operands = [], examples = [], hidden } of VERBS) {
    if (hidden || name === "help") continue;
    const help = await run([name, "--help"]);
    assertEquals(help, await run(["help", name]), name);
    assertEquals([help.code, help.err], [0, ""]);
    const words = operands.map(({ name, many, optional }) => {
      const word = many ? `${name}...` : name;
      return optional ? `[${word}]` : word;
    });
    assertStringIncludes(help.out, `\n  kube-relay ${[name, ...words].join(" ")}`);
    for (const example of examples) {
      assertStringIncludes(help.out, `\n  ${example}\n`);
      for (const [flag] of example.matchAll(/(?<= )--[a-z-]+/g)) {
        const own = flag === "--mode" ? "--proxy-mode" : flag;
        assert(new RegExp(`\n  ${own}\\b`).test(help.out), `${name} ${own}`);
      }
    }
    for (const line of help.out.split("\n")) assert(line.length <= 80, line);
  }
  const { out } = await run(["status", "--help"]);
  for (const flag of ["--watch", "--control-socket", "--json"]) {
    assertStringIncludes(out, `\n  ${flag}`);
  }
  assert(!out.includes("--proxy-mode"), out);
});

/** Clears the screen, sets the title, begins a sequence in one byte, turns the writing round. */
const HOSTILE = "\x1b[2J\x1b]0;x\x07\u009b2J\r\u202e";

Deno.test("runCommandLine() lets no control character of an argument or a file reach the terminal", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const yaml = `${folder}/${HOSTILE}.yaml`;
    const header = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";
    const text = JSON.stringify(HOSTILE).replace("\u009b", "\\x9b").replace("\u202e", "\\u202e");
    await Deno.writeTextFile(yaml, `${header}mode: ${text}\n${text}: 1\nclusterCIDR: ${text}\n`);
    for (
      const argv of [
        [HOSTILE],
        ["status", HOSTILE],
        ["explain", HOSTILE, HOSTILE],
        [`--${HOSTILE}`],
        [`--mode=${HOSTILE}`],
        [`--cluster-cidr=${HOSTILE}`],
        [`--config=${folder}/${HOSTILE}`],
        [`--config=${yaml}`],
        [`--kubeconfig=${folder}/${HOSTILE}`, "render", "--mode=userspace"],
        ["render", "--mode=userspace", `--manifests=${folder}/${HOSTILE}`],
        ["explain", "10.0.0.1", "10.0.0.2:80", `--from=${folder}/${HOSTILE}`],
        ["dump", `--control-socket=${folder}/${HOSTILE}`],
        ["status", `--control-socket=${folder}/${HOSTILE}`],
        ["help", HOSTILE],
      ]
    ) {
      const { out, err } = await run(argv, { stdoutIsTerminal: true });
      assertEquals(
        /(?!\n)\p{Cc}|\p{Cf}/u.exec(out + err),
        null,
        JSON.stringify({ argv, out, err }),
      );
    }
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("runCommandLine() serves no Services as a plugin of kubectl", async () => {
  const env = (name: string) => name === "KUBE_RELAY_NAME" ? "kubectl-kube_relay" : undefined;
  for (const argv of [[], ["run"], ["--mode=userspace"]]) {
    const { code, out, err } = await run(argv, { env });
    assertEquals([code, out], [2, ""]);
    assertStringIncludes(err, "A plugin of kubectl does not serve: name a verb");
  }
  assertEquals((await run(["--version"], { env })).code, 0);
});

Deno.test("runCommandLine() refuses a mode that this build does not have, and exits with 1", async () => {
  assertEquals(await run(["--mode=ipvs", NO_SERVER]), {
    code: 1,
    out: "",
    err: "kube-relay: Cannot run in mode 'ipvs': this release has userspace only\n",
  });
});

Deno.test("runCommandLine() exits with 0 when it is asked to end while the mode is chosen", async () => {
  const closed = ["--healthz-bind-address=", "--metrics-bind-address="];
  const runEnded = (argv: readonly string[], kind: "aborted" | "timeout") => {
    const end = new AbortController();
    const probeMode = () => {
      end.abort();
      return Promise.reject(new CommandError("nft", [], kind, "Cannot run 'nft' to its end"));
    };
    const hostChecks = { ...fakeHostChecks(), probeMode };
    // Without IPv6, no tool is asked for the families meanwhile.
    const network = { ...systemNetwork, interfaceAddresses: () => [] };
    return run([...closed, NO_SERVER, ...argv], {}, { hostChecks, signal: end.signal, network });
  };
  assertEquals((await runEnded(["--proxy-mode=userspace"], "aborted")).code, 0);
  assertEquals((await runEnded(["--proxy-mode=userspace"], "timeout")).code, 1);
  const init = await runEnded(["--proxy-mode=userspace", "--init-only"], "aborted");
  assertEquals(init.code, 1, "what it was to do is not done");
});

Deno.test("runCommandLine() reports why it ended in a line of JSON if the log is JSON", async () => {
  const { code, err } = await run(["--logging-format=json", "--proxy-mode=iptables", NO_SERVER]);
  assertEquals([code, err.trim().split("\n").length], [1, 1]);
  const { ts, err: reason, ...line } = JSON.parse(err);
  assertEquals(line, { level: "error", msg: "Command failed" });
  assert(ts > 0);
  assertStringIncludes(reason, "Cannot run in mode 'iptables'");
});

Deno.test("runCommandLine() --write-config-to writes the effective configuration, and nothing invalid", () =>
  withFolder(async (folder) => {
    const flag = `--write-config-to=${folder}/c.yaml`;
    assertEquals((await run([flag, "--oom-score-adj=5", "--cluster-cidr=x"])).code, 2);
    assertEquals(await Array.fromAsync(Deno.readDir(folder)), []);
    const good = await run([flag, "--oom-score-adj=5", "--version=v1.36.0"]);
    assertEquals([good.code, good.err], [0, ""]);
    const text = await Deno.readTextFile(`${folder}/c.yaml`);
    assertStringIncludes(text, "\nmode: iptables\n");
    assertStringIncludes(text, "\noomScoreAdj: 5\n");
    const printed = await run([
      ...["write-config", "/dev/stdout", "--proxy-mode=nftables", "--masquerade-all"],
    ]);
    assertStringIncludes(printed.out, "\nnodePortAddresses:\n  - primary\n");
    assertStringIncludes(printed.out, "\nmode: nftables\n");
    const auto = await run(["write-config", "/dev/stdout", "--proxy-mode=auto"]);
    assertStringIncludes(auto.out, "\nmode: auto\n");
    const noFile =
      "kube-relay: 'write-config' lacks FILE: the file to write; /dev/stdout prints it\nkube-relay: see --help\n";
    assertEquals(await run(["write-config"]), { code: 2, out: "", err: noFile });
    const nowhere = await run(["write-config", "/no/such/folder/file"]);
    assertEquals(nowhere.code, 1);
    assertStringIncludes(nowhere.err, "Cannot write the configuration to '/no/such/folder/file': ");
    assertEquals((await run(["status", flag])).code, 2);
  }));

Deno.test("runCommandLine() names all that is wrong and exits with 2", async () => {
  const cases: readonly [argv: string[], ...problems: string[]][] = [
    [["--mod=x", "--nope"], "Unknown flag --mod; did you mean '--mode'?", "Unknown flag --nope"],
    [["statsu"], "Unknown command 'statsu'; did you mean 'status'?"],
    [["help", "statsu"], "Unknown command 'statsu'; did you mean 'status'?"],
    [["status", "more"], "Unexpected argument 'more'; flags begin with --"],
    [["--filter=x"], "Flag --filter belongs to 'status', not to 'run'"],
    [["render", "--from="], "--from: Expected the path of a dump, found nothing"],
    [
      ["--mode=ipsv"],
      "--proxy-mode: Cannot run in mode 'ipsv': there is no such mode, only iptables, ipvs, " +
      "nftables, userspace, auto; did you mean 'ipvs'?",
    ],
    [
      ["--version=7"],
      "Cannot use '7' for --version: expected one of true, false, raw, or a version such as v1.36.0",
    ],
  ];
  for (const [argv, ...problems] of cases) {
    const { code, out, err } = await run(argv);
    assertEquals({ code, out }, { code: 2, out: "" }, argv.join(" "));
    const lines = [
      ...problems.map((problem) => `kube-relay: ${problem}`),
      "kube-relay: see --help",
    ];
    assertEquals(err, `${lines.join("\n")}\n`);
  }
});

const REPORT = testStatusReport({
  sources: [{ name: "a.yaml", state: "2 objects", problems: [] }],
  families: [testStatusFamily({
    summary: "already local",
    services: ["demo/a", "demo/b"]
      .map((name) => ({ name, protocol: "TCP", addresses: [], endpoints: [] })),
  })],
});

Deno.test("runCommandLine() status asks the control socket", () =>
  withFolder(async (folder) => {
    const path = `${folder}/control.sock`;
    let phase = REPORT.phase;
    const server = await startControlServer({
      path,
      routes: { "/status": () => Promise.resolve({ ...REPORT, phase }) },
    });
    const status = (...flags: readonly string[]) =>
      run(["status", `--control-socket=${path}`, ...flags]);
    const table = await status();
    assertEquals([table.code, table.err], [0, ""]);
    assertStringIncludes(table.out, "kube-relay v0.1.0  serving, started 0s ago  (process 4711)\n");
    assertStringIncludes(table.out, "demo/b TCP  no endpoints  -");
    assert(!(await status("--filter=demo/a")).out.includes("demo/b"));
    assertEquals(JSON.parse((await status("--json")).out), {
      apiVersion: "kube-relay/v1",
      ...REPORT,
    });
    assert(!(await status("--problems")).out.includes("Source"));
    assertEquals((await status("--check")).code, 0);
    assertEquals((await status("--check", "--filter=demo/a")).code, 0);
    const nothing = await status("--check", "--filter=demo/typo");
    assertEquals([nothing.code, nothing.err], [1, "kube-relay: No Service matches 'demo/typo'\n"]);
    phase = "stopping";
    assertEquals((await status("--check")).code, 1);
    const json = JSON.parse((await status("--json", "--filter=b")).out) as StatusReport;
    assertEquals(json.families[0]!.services.map(({ name }) => name), ["demo/b"]);
    const colored = async (env: Readonly<Record<string, string>>, stdoutIsTerminal = true) => {
      const process = { env: (name: string) => env[name], stdoutIsTerminal };
      return (await run(["status", `--control-socket=${path}`], process)).out.includes("\u001b[");
    };
    assertEquals(await colored({ TERM: "xterm" }), true);
    assertEquals(await colored({ TERM: "xterm" }, false), false);
    assertEquals(await colored({ TERM: "xterm", NO_COLOR: "1" }), false);
    assertEquals(await colored({ TERM: "dumb" }), false);
    await server.stop();
  }));

Deno.test("runCommandLine() status refuses flags that do not go together", async () => {
  for (
    const [given, problem] of [
      ["--changes --check", "Flag --check cannot be used with --changes; leave one of them out"],
      ["--watch --check", "Flag --check cannot be used with --watch; leave one of them out"],
      ["--watch --problems", "Flag --problems cannot be used with --watch; leave one of them out"],
      ["--watch --all", "Flag --all cannot be used with --watch; leave one of them out"],
      ["--watch --last=3", "Flag --last cannot be used with --watch; leave one of them out"],
      ["--last=3", "Flag --last needs --changes"],
      ["--context=far", "Flag --context needs --cluster"],
      ["--all --problems", "Flag --problems cannot be used with --all; leave one of them out"],
    ] as const
  ) {
    const { code, err } = await run(["status", ...given.split(" ")]);
    assertEquals(code, 2, given);
    assertStringIncludes(err, problem);
  }
});

Deno.test("seldomYielding() yields to the event loop only after a long turn", async () => {
  const clock = new FakeClock();
  let turns = 0;
  clock.yieldToEventLoop = () => (turns++, Promise.resolve());
  const slow = seldomYielding(clock);
  const found: number[] = [];
  for (let ms = 0; ms < 120; ms += 10) {
    await slow.yieldToEventLoop();
    found.push(turns);
    await clock.advance(10);
  }
  assertEquals(found, [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2]);
});
