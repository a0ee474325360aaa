/**
 * Packets and moments that could evade the rules: fragments, addresses that move, and a process that is
 * killed in the middle of a sync.
 */
import { assertEquals } from "@std/assert";
import type { CommandOptions, CommandRunner } from "../../lib/os/command_runner.ts";
import { setPod } from "../support/builders/policy_objects.ts";
import { eventually } from "../support/eventually.ts";
import { program, type Requirement, testNeeding } from "../support/requirement.ts";
import { type Namespace, netnsRequirements } from "../support/stages/netns.ts";
import {
  addressOf,
  ANSWERED,
  type PolicyDataPlaneFactory,
  PolicyScene,
} from "../support/stages/policy_scene.ts";

/** A data plane under test. */
interface AttackedDataPlane {
  readonly name: string;
  readonly requirements: readonly Requirement[];
  readonly make: PolicyDataPlaneFactory;
}

/** More than two frames hold. */
const LARGE = 4_000;
/** A port whose rules the kernel is made to refuse. */
const REFUSED = 6_666;

/** Sends a datagram in fragments from each namespace. Returns the names of those that arrive at web. */
async function arrivals(
  scene: PolicyScene,
  senders: Readonly<Record<string, Namespace>>,
): Promise<readonly string[]> {
  const { node, localPods: [web] } = scene.cluster;
  const inbox = web.start("socat", ["-u", "-b", "65536", "UDP4-RECV:9000", "STDOUT"]);
  await eventually(
    "the socket is open",
    async () => (await web.output("ss", ["-Huna", "sport", "=", ":9000"])) !== "",
  );
  const target = `UDP4-DATAGRAM:${addressOf("web", "IPv4")}:9000`;
  // What the node sends always arrives, and last.
  for (const [name, sender] of Object.entries({ ...senders, end: node })) {
    const command = `printf '%${LARGE}s\\n' ${name} | socat -b 65536 -u - ${target}`;
    await sender.output("sh", ["-c", command]);
  }
  const found: string[] = [];
  while (found.at(-1) !== "end") found.push((await inbox.nextLine()).trim());
  await inbox.kill();
  return found.slice(0, -1);
}

async function checkFragments(scene: PolicyScene): Promise<void> {
  scene.setPolicy("web", {
    podSelector: { matchLabels: { app: "web" } },
    ingress: [{
      from: [{ podSelector: { matchLabels: { app: "client" } } }],
      ports: [{ port: 9000, protocol: "UDP" }],
    }],
  });
  await scene.sync();
  const { localPods: [, db], localPodClient: client, remotePods: [remote] } = scene.cluster;
  assertEquals(await arrivals(scene, { db, client, remote }), ["client"]);
}

/** The address of an isolated pod goes to one that is not isolated, and back. */
async function checkMovedAddress(scene: PolicyScene): Promise<void> {
  scene.setPolicy("web", { podSelector: { matchLabels: { app: "web" } } });
  await scene.sync();
  assertEquals(await scene.probe("db", "web"), "refused");
  const address = `${addressOf("web", "IPv4")},${addressOf("web", "IPv6")}`;
  const pods = { old: { labels: { app: "web" } }, next: { labels: { app: "next" } } };
  for (const [owner, answer] of [["next", "web"], ["old", "refused"]] as const) {
    setPod(scene.state, "x/web", owner === "old" ? { ...pods.old, address } : { phase: "Failed" });
    setPod(
      scene.state,
      "x/next",
      owner === "old" ? { phase: "Failed" } : { ...pods.next, address },
    );
    await scene.sync();
    assertEquals(
      await scene.probe("db", "web", answer === "web" ? ANSWERED : {}),
      answer,
      `the address is of pod '${owner}'`,
    );
  }
}

/** Stands between a data plane and its tools. */
class Saboteur {
  /** Commands that still run: none after a `kill -9`. */
  remaining = Infinity;
  hasKilled = false;
  /** Whether rules for the port {@linkcode REFUSED} go to a chain that does not exist. */
  spoils = false;

  commands(commands: CommandRunner): CommandRunner {
    return {
      run: async (program, args, options) => {
        if (this.remaining-- > 0) {
          return await commands.run(program, args, await this.#spoilt(options));
        }
        this.hasKilled = true;
        throw new Error("The process was killed");
      },
    };
  }

  async #spoilt(options: CommandOptions | undefined): Promise<CommandOptions | undefined> {
    const { stdin } = options ?? {};
    if (!this.spoils || stdin === undefined) return options;
    const pieces = typeof stdin === "string" ? [stdin] : await Array.fromAsync(stdin);
    const rule = new RegExp(`^(.*dports? ${REFUSED} .*)(?:-j RETURN|accept)$`, "gm");
    const text = pieces.join("").replace(
      rule,
      (_, match: string) => `${match}${match.startsWith("-A") ? "-j" : "jump"} KUBE-MISSING`,
    );
    return { ...options, stdin: text };
  }
}

/** Web is reached by clients; with `db`, also by the database, and not by another port. */
function setWeb(scene: PolicyScene, withDb: boolean): void {
  const from = ["client", ...(withDb ? ["db"] : [])].map((app) => ({
    podSelector: { matchLabels: { app } },
  }));
  scene.setPolicy("web", {
    podSelector: { matchLabels: { app: "web" } },
    ingress: [{ from, ports: [{ port: withDb ? 8080 : 8081 }, { port: 8080 }] }],
  });
  scene.setPolicy("db", withDb ? { podSelector: { matchLabels: { app: "db" } } } : undefined);
}

async function checkKills(scene: PolicyScene, killer: Saboteur): Promise<void> {
  setWeb(scene, false);
  await scene.sync();
  for (let commands = 0;; commands++) {
    const withDb = commands % 2 === 0;
    setWeb(scene, withDb);
    killer.remaining = commands;
    killer.hasKilled = false;
    await scene.sync().catch(() => {});
    const text = `after ${commands} commands`;
    assertEquals(await scene.probe("client", "web", ANSWERED), "web", text);
    assertEquals(await scene.probe("remote", "web"), "refused", text);
    const isCompleted = !killer.hasKilled;
    if (!isCompleted) await scene.stop();
    killer.remaining = Infinity;
    if (isCompleted) break;
    await scene.start();
    await scene.sync();
    assertEquals(await scene.differences(), [], text);
    assertEquals(
      await scene.probe("db", "web", withDb ? ANSWERED : {}),
      withDb ? "web" : "refused",
      text,
    );
  }
}

async function checkRefusal(scene: PolicyScene, saboteur: Saboteur): Promise<void> {
  const clients = { from: [{ podSelector: { matchLabels: { app: "client" } } }] };
  setWeb(scene, true);
  scene.setPolicy("refused", {
    podSelector: { matchLabels: { app: "web" } },
    ingress: [{ ...clients, ports: [{ port: 8081 }] }, { ports: [{ port: REFUSED }] }],
  });
  saboteur.spoils = true;
  for (const { quarantined } of await scene.sync()) {
    assertEquals(quarantined.map(({ key }) => `${key}`), ["x/refused"]);
  }
  const probes = async () => [
    await scene.probe("client", "web", ANSWERED),
    await scene.probe("client", "web", { port: 8081 }),
    await scene.probe("remote", "web", { port: 8081 }),
  ];
  assertEquals(await probes(), ["web", "refused", "refused"]);
  saboteur.spoils = false;
  await eventually("the policy is tried again", async () => {
    const reports = await scene.sync();
    return reports.every(({ quarantined }) => quarantined.length === 0);
  });
  assertEquals(await probes(), ["web", "web", "refused"]);
  assertEquals(await scene.differences(), []);
}

/** Declares the test of a data plane. */
export function testPolicyAttacks({ name, requirements, make }: AttackedDataPlane): void {
  const test = testNeeding(`attacks on NetworkPolicy by ${name}`, [
    ...netnsRequirements(),
    program("socat"),
    ...requirements,
  ]);
  test(`policy by ${name}: nothing passes the rules by`, async (t) => {
    const saboteur = new Saboteur();
    await using scene = await PolicyScene.create((dependencies, options) =>
      make({ ...dependencies, commands: saboteur.commands(dependencies.commands) }, options)
    );
    await t.step("a datagram in fragments is judged as a whole", () => checkFragments(scene));
    await t.step(
      "an address that moves takes the rules of its new pod",
      () => checkMovedAddress(scene),
    );
    await t.step(
      "a sync that is killed opens nothing, and the next process completes it",
      () => checkKills(scene, saboteur),
    );
    await t.step(
      "a rule that the kernel refuses allows nothing, and delays no other one",
      () => checkRefusal(scene, saboteur),
    );
  });
}
