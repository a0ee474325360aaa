/**
 * Runs every verb that examines a node from the executable. Its permissions were fixed by the
 * build, so a verb that works from source may be refused there.
 */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { program, testNeeding } from "../support/requirement.ts";
import { eventually } from "../support/eventually.ts";
import { TcpServer } from "../support/drivers/tcp_peers.ts";
import { writeKubeconfig } from "../support/builders/kubeconfig_file.ts";
import { FakeApiServer } from "../support/fakes/fake_api_server.ts";
import { TerminalProcess } from "../support/drivers/terminal_process.ts";
import { Executable, EXECUTABLE_REQUIREMENTS, type Output, USERS } from "./executable.ts";
import { answerOf, objectsOf, serviceAddress } from "./loopback_service.ts";

const test = testNeeding("tests/binary/verbs_test.ts", [
  ...EXECUTABLE_REQUIREMENTS,
  program("script"),
  program("stty"),
]);

/** The input of the verbs. */
interface Scene {
  /** Of the user's; a dump comes into it. */
  readonly folder: string;
  /** `address:port` of the Service `default/web`. */
  readonly service: string;
}

/** One command line, with its expected output. */
type VerbCase = readonly [args: (scene: Scene) => readonly string[], says: RegExp];

/** In this order: what reads the dump comes after what writes it. */
const VERBS: readonly VerbCase[] = [
  [() => ["status"], /default\/web/],
  [() => ["status", "--json"], /"name": "default\/web"/],
  [() => ["status", "--changes"], /-> default\/web\/TCP added: 1 endpoint/],
  [() => ["status", "--changes", "--json"], /"item": "default\/web\/TCP"/],
  [() => ["explain", "node", "default/web"], /FORWARDED to 127\.0\.0\.1/],
  [({ service }) => ["explain", "outside", service, "--json"], /"headline": "FORWARDED/],
  [() => ["diff"], /as planned/],
  [() => ["diff", "--json"], /"differences": 0/],
  [({ folder }) => ["diff", `--manifests=${folder}/manifests`], /Nothing would change/],
  [
    ({ folder }) => ["check", `${folder}/manifests`],
    /No problems in 1 file[^]*Nothing would change/,
  ],
  [() => ["trace", "node", "default/web"], /default\/web\/TCP/],
  [() => ["dump", "-"], /"kind":"kube-relay dump"/],
  [({ folder }) => ["dump", `${folder}/home/node.json`], /read it with --from/],
  [({ folder }) => ["status", `--from=${folder}/home/node.json`], /default\/web/],
  [
    ({ folder }) => ["status", "--changes", `--from=${folder}/home/node.json`],
    /TCP added: 1 endpoint/,
  ],
  [
    ({ folder, service }) => ["explain", "node", service, `--from=${folder}/home/node.json`],
    /FORW/,
  ],
  [
    ({ folder }) => [
      ...["diff", `--from=${folder}/home/node.json`],
      `--manifests=${folder}/manifests`,
    ],
    /Nothing would change/,
  ],
  [({ folder }) => ["render", `--from=${folder}/home/node.json`], /ClusterIP default\/web\/TCP/],
  [() => ["completion", "bash"], /compgen/],
  [() => ["completion", "zsh"], /#compdef/],
  [() => ["completion", "fish"], /complete -c kube-relay/],
  [() => ["man"], /^\.TH KUBE-RELAY/],
  [() => ["doctor"], /userspace/],
  ...[
    "status",
    "check",
    "explain",
    "diff",
    "trace",
    "dump",
    "render",
    "doctor",
    "completion",
    "man",
  ].map(
    (verb): VerbCase => [() => [verb, "--help"], new RegExp(`Usage:\n +kube-relay ${verb}\\b`)],
  ),
];

/** Kernel modes, rendered for a machine that is not asked. */
const RENDERED = [["iptables", /\*nat/], ["nftables", /add table ip/], [
  "ipvs",
  /ipvsadm/,
]] as const;

/** Commands without a running kube-relay, or with a file that is no dump. */
const REFUSALS: readonly (readonly [args: readonly string[], code: number, says: RegExp])[] = [
  [["trace", "node"], 2, /'trace' lacks TO/],
  [["explain", "node", "default/none"], 1, /default\/none/],
  [["status", "--watch"], 2, /no terminal/],
  [
    ["dump", "/proc/nonexistent/dump.json"],
    1,
    /kube-relay does not open '\/proc\/nonexistent\/dump.json': choose a file outside \/dev, /,
  ],
  [["dump", "/dev/full"], 1, /kube-relay does not open '\/dev\/full': choose a file outside /],
  [["render", "--from=/proc/self/comm"], 1, /kube-relay does not open '\/proc\/self\/comm'/],
  [["render", "--from=/dev/null"], 1, /Cannot read dump '\/dev\/null'/],
];

function check({ code, stdout, stderr }: Output, says: RegExp): void {
  assertEquals({ code, stderr }, { code: 0, stderr: "" }, stdout);
  assertMatch(stdout, says);
}

for (const user of USERS) {
  test(`the verbs of the executable, as ${user}`, async (t) => {
    await using executable = await Executable.create(user);
    await using web = TcpServer.named("web");
    const address = serviceAddress();
    await executable.writeManifest(
      "web.json",
      objectsOf("web", { protocol: "TCP", address, endpoint: web.port }),
    );
    await using process = executable.start();
    assertEquals(await answerOf(address), "web");
    const folder = executable.directory;
    const scene = { folder, service: `${address.hostname}:${address.port}` };
    for (const [args, says] of VERBS) {
      const line = args(scene);
      const shown = line.join(" ").replaceAll(folder, "").replaceAll(scene.service, "SERVICE");
      await t.step(shown, async () => check(await executable.run(line), says));
    }
    for (const [mode, says] of RENDERED) {
      await t.step(`render --mode ${mode}`, async () => {
        const manifests = `--manifests=${folder}/manifests`;
        check(await executable.run(["render", "--mode", mode, manifests]), says);
      });
    }
    for (const [line, code, says] of REFUSALS) {
      await t.step(`${line.join(" ")}: exits with ${code} and gives the reason`, async () => {
        const output = await executable.run(line);
        assertEquals({ code: output.code, stdout: output.stdout }, { code, stdout: "" });
        assertMatch(output.stderr, says);
      });
    }
    await t.step("status --watch on a terminal", async () => {
      const command = executable.command(["status", "--watch"], ["TERM=xterm"]);
      await using terminal = new TerminalProcess({
        folder: await executable.makeDirectory("terminal"),
        ...{ command, columns: 80, rows: 24 },
      });
      await terminal.shows("the state", ({ text }) => text.includes("serving"));
      assert(terminal.screen.isAlternate);
      await terminal.type("q");
      assertEquals(await terminal.ended(), { code: 0, isRestored: true });
    });
    await t.step(
      "kubectl-kube_relay status --cluster, with the kubeconfig of kubectl",
      async () => {
        await using api = await FakeApiServer.start();
        api.store.create({ apiVersion: "v1", kind: "Node", metadata: { name: "node-a" } });
        api.nodePort = () => ({
          text: '# TYPE x gauge\nkube_relay_build_info{version="1.2.3"} 1\n',
        });
        await executable.makeDirectory("home/.kube");
        const kubeconfig = `${folder}/home/.kube/config`;
        const content = { server: api.url, ca: api.ca, user: { token: api.rotateToken() } };
        await writeKubeconfig(kubeconfig, content);
        await executable.give(kubeconfig);
        const link = `${folder}/kubectl-kube_relay`;
        await Deno.symlink("kube-relay", link);
        const [command, ...args] = executable
          .command(["status", "--cluster"], [`HOME=${folder}/home`])
          .map((word) => word === executable.path ? link : word);
        const { code, stdout } = await new Deno.Command(command!, { args, stderr: "inherit" })
          .output();
        assertEquals(code, 0);
        assertMatch(new TextDecoder().decode(stdout), /1 v1\.2\.3[^]*\nnode-a +serving/);
        const [program, ...others] = [command!, ...args.slice(0, args.indexOf(link) + 1)];
        const bare = await new Deno.Command(program, { args: others, stderr: "piped" }).output();
        assertEquals(bare.code, 2);
        assertMatch(new TextDecoder().decode(bare.stderr), /A plugin of kubectl does not serve/);
      },
    );
    await t.step("status --json of a file name that a terminal would obey", async () => {
      await Deno.writeTextFile(`${folder}/manifests/bad-\u009b2J\u202e.yaml`, "{");
      await eventually("the file is reported", async () => {
        const { stdout } = await executable.run(["status", "--json"]);
        assertMatch(stdout, /^[\n\x20-\x7e]+$/);
        return stdout.includes("bad-\\u009b2J\\u202e.yaml");
      });
    });
    process.signal("SIGTERM");
    assertEquals((await process.status()).code, 0, process.errors);
  });
}
