/**
 * `kube-relay diff` in userspace mode: the sockets that are planned, those that the process has, and
 * those that the kernel lists.
 */
import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { runInProcess } from "./support/drivers/command_line.ts";
import { eventually } from "./support/eventually.ts";
import { type CommandRunner, systemCommandRunner } from "../lib/os/command_runner.ts";
import type { DataPlaneDifference } from "../lib/proxy/data_plane.ts";
import { testEndpointSlice, testNode, testService } from "./support/builders/builders.ts";
import { DumpedRelay } from "./support/stages/dumped_relay.ts";
import { manifestText, rawObjects } from "./support/builders/raw_objects.ts";

/** A runner for commands that only read the machine. */
const LOOKS: CommandRunner = {
  run(program, args, options) {
    if (program === "cat" || (program === "ip" && args.includes("show"))) {
      return systemCommandRunner.run(program, args, options);
    }
    return Promise.resolve({ code: 1, stdout: "", stderr: "not here" });
  },
};

/** A machine on which the kernel lists no socket for TCP. */
const LOST: CommandRunner = {
  run: (program, args, options) =>
    args[0] === "/proc/net/tcp"
      ? Promise.resolve({ code: 0, stdout: "  sl  local_address rem_address   st\n", stderr: "" })
      : LOOKS.run(program, args, options),
};

/** A machine on which `/proc` is unreadable. */
const MUTE: CommandRunner = {
  run: (program, args, options) =>
    program === "cat"
      ? Promise.resolve({ code: 1, stdout: "", stderr: "cat: Permission denied" })
      : LOOKS.run(program, args, options),
};

function diff(commands: CommandRunner, ...argv: readonly string[]) {
  return command(commands, "diff", ...argv);
}

function command(commands: CommandRunner, ...argv: readonly string[]) {
  return runInProcess(argv, { commands, process: { stdoutIsTerminal: false } });
}

/** A port of an address that is free at the time of the call. */
function holdPort(hostname: string): Deno.TcpListener {
  return Deno.listen({ hostname, port: 0 });
}

/** A kube-relay in userspace mode: `shop/web` is served, the port of `shop/taken` something else has. */
async function withRelay(
  commands: CommandRunner,
  run: (scene: { readonly socket: string; readonly port: number }) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir();
  const held = holdPort("127.80.0.5");
  const { port } = held.addr;
  const service = (name: string, clusterIP: string) => [
    ...rawObjects("Service", testService(name, { clusterIP, ports: [{ port }] })),
    ...rawObjects("EndpointSlice", testEndpointSlice(name, { endpoints: ["127.0.0.9"] })),
  ];
  const objects = [
    ...rawObjects("Node", testNode()),
    ...service("shop/web", "127.80.0.4"),
    ...service("shop/taken", "127.80.0.5"),
  ];
  await Deno.writeTextFile(`${folder}/all.yaml`, manifestText(objects));
  try {
    const flags = [`--manifests=${folder}`];
    await using relay = await DumpedRelay.start({ mode: "userspace", commands, flags });
    await run({ port, socket: `--control-socket=${relay.socket}` });
  } finally {
    held.close();
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("diff finds no listener missing if all are open, or if they cannot be listed", async () => {
  for (const commands of [LOOKS, MUTE]) {
    await withRelay(commands, async ({ socket, port }) => {
      const { code, out, err } = await diff(commands, socket);
      assertEquals([code, err], [0, ""], out);
      assertMatch(out, new RegExp(`shop/taken TCP 127.80.0.5:${port}/TCP: Cannot`));
      assertStringIncludes(out, "as planned, except for the quarantine\n");
    });
  }
});

Deno.test("diff counts listeners that are missing, and repairs none", () =>
  withRelay(LOST, async ({ socket, port }) => {
    const web = `127.80.0.4:${port}/TCP`;
    const lost = await diff(LOST, socket);
    assertEquals(lost.code, 3);
    assertStringIncludes(lost.out, `shop/web TCP\n  missing  listener ${web}\n`);
    assertStringIncludes(lost.out, "\n1 difference\n");
    const repair = await diff(LOST, socket, "--repair");
    assertEquals(repair.code, 3);
    assertStringIncludes(repair.out, "1 difference, of which 0 repaired");
    assertStringIncludes(repair.out, "1 difference left");
    const { families } = JSON.parse((await diff(LOST, socket, "--json")).out);
    const [{ service, object, name, kind, cure }] = families[0].differences;
    assertEquals([service, object, name, kind], ["shop/web", "listener", web, "missing"]);
    assertStringIncludes(cure, "restart it");
    assertEquals(families[0].quarantined[0].service, "shop/taken");
  }));

Deno.test("explain looks for the sockets, too, where it reports that they are as they should be", async () => {
  for (const [commands, wanted] of [[LOOKS, []], [LOST, ["missing listener"]]] as const) {
    await withRelay(commands, async ({ socket, port }) => {
      let found: readonly DataPlaneDifference[] | undefined;
      // A busy machine may not answer in the time that explain gives it.
      await eventually("the machine answers", async () => {
        const { out } = await command(
          commands,
          ...["explain", "127.0.0.1", `127.80.0.4:${port}`, socket, "--json"],
        );
        const [{ kernel }] = JSON.parse(out).packets;
        found = kernel.differences;
        return found !== undefined;
      });
      assertEquals(found!.map(({ kind, object }) => `${kind} ${object}`), [...wanted]);
    });
  }
});
