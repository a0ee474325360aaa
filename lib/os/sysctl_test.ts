import { assertEquals } from "@std/assert";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { Sysctl } from "./sysctl.ts";

const FORWARD = "net.ipv4.ip_forward";
const MAX = "net.netfilter.nf_conntrack_max";

/** A tool that prints this, and what it was asked for. */
function toolThat(answer: { code?: number; stdout?: string; stderr?: string }) {
  const commands = new FakeCommandRunner().on("sysctl", answer);
  return { sysctl: new Sysctl(commands), lines: () => commands.calls.map(({ line }) => line) };
}

Deno.test("Sysctl.read() reads many by one command, and unknown ones do not affect the others", async () => {
  const { sysctl, lines } = toolThat({
    code: 1,
    stdout: `${FORWARD} = 32768\t60999 \n`,
    stderr: "sysctl: cannot stat /proc/sys/net/netfilter/nf_conntrack_max: " +
      "No such file or directory\n",
  });
  const { values, problems } = await sysctl.read([FORWARD, MAX]);
  assertEquals([...values], [[FORWARD, "32768\t60999"]]);
  assertEquals(problems.get(MAX)?.kind, "unknown");
  assertEquals((await sysctl.read([])).values.size, 0);
  assertEquals(lines(), [`sysctl ${FORWARD} ${MAX}`]);
});

for (const kind of ["not-found", "not-permitted"] as const) {
  Deno.test(`Sysctl.read() and write() report a tool that is ${kind}`, async () => {
    const commands = new FakeCommandRunner().failNext(kind);
    const { problems } = await new Sysctl(commands).read([FORWARD]);
    assertEquals(problems.get(FORWARD)?.kind, "no tool");
    commands.failNext(kind);
    const reasons = await new Sysctl(commands).write(new Map([[FORWARD, "1"], [MAX, "2"]]));
    assertEquals([...reasons].map(([name, reason]) => [name, reason.includes(kind)]), [
      [FORWARD, true],
      [MAX, true],
    ]);
  });
}

/** Results of `sysctl -w` of two settings: code, errors, and the reason for each. */
const WRITTEN: readonly (readonly [code: number, stderr: string, ...reasons: string[]])[] = [
  [0, ""],
  // Older procps exit with 0 for this.
  [0, `sysctl: setting key "${FORWARD}": Read-only file system`, "Read-only file system"],
  [1, `sysctl: error setting key '${FORWARD}': Read-only file system`, "Read-only file system"],
  [1, `sysctl: permission denied on key "${FORWARD}"`, "permission denied"],
  [
    1,
    `sysctl: setting key "${FORWARD}": Invalid argument`,
    "read-only here, or no value that it takes (Invalid argument)",
  ],
  // A message that names no setting is about all of them, whatever the code.
  [0, "sysctl: cannot write", "cannot write", "cannot write"],
  [139, "", "sysctl ended with code 139", "sysctl ended with code 139"],
];

for (const [code, stderr, ...reasons] of WRITTEN) {
  Deno.test(`Sysctl.write() reports code ${code} and '${stderr}' by setting`, async () => {
    const { sysctl, lines } = toolThat({ code, stderr: stderr && `${stderr}\n` });
    const found = await sysctl.write(new Map([[FORWARD, "1"], [MAX, "2"]]));
    assertEquals([...found.values()], reasons);
    assertEquals((await sysctl.write(new Map())).size, 0);
    assertEquals(lines(), [`sysctl -w ${FORWARD}=1 ${MAX}=2`]);
  });
}
