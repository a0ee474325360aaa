/** Tests the output and the exit code of the executable when it does not serve. */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { testNeeding } from "../support/requirement.ts";
import { Executable, EXECUTABLE_REQUIREMENTS, USERS } from "./executable.ts";

const test = testNeeding("tests/binary/command_line_test.ts", EXECUTABLE_REQUIREMENTS);

/** Arguments, exit code, and standard error. */
const REFUSALS: readonly (readonly [args: string[], code: number, says: RegExp])[] = [
  [["--manifest=/x"], 2, /--manifests/],
  [["--proxy-mode=iptabels", "--manifests=/x"], 2, /.iptables./],
  [["--mode=userspaces", "--manifests=/x"], 2, /userspace/],
  [["--udp-timeout=soon"], 2, /--udp-timeout/],
  [["statsu"], 2, /status/],
  [["status"], 1, /control\.sock/],
];

for (const user of USERS) {
  test(`the executable's command line, as ${user}`, async (t) => {
    await using executable = await Executable.create(user);
    const { version } = JSON.parse(
      await Deno.readTextFile(new URL("../../deno.json", import.meta.url)),
    );

    await t.step("--version prints one line and nothing else", async () => {
      const output = await executable.run(["--version"]);
      const stdout = `kube-relay v${version} (kube-proxy 1.36 compatible)\n`;
      assertEquals(output, { code: 0, stdout, stderr: "" });
    });

    await t.step("--help names verbs and flags", async () => {
      const { code, stdout, stderr } = await executable.run(["--help"]);
      assertEquals({ code, stderr }, { code: 0, stderr: "" });
      for (const word of ["status", "--kubeconfig", "--manifests", "--proxy-mode"]) {
        assert(stdout.includes(word), `--help does not name ${word}`);
      }
    });

    for (const npmrc of ["FIFO", "directory"]) {
      await t.step(
        `a ${npmrc} .npmrc in HOME is not read, and HOME keeps its meaning`,
        async () => {
          const home = await executable.makeDirectory(`home-with-${npmrc}`);
          if (npmrc === "directory") await Deno.mkdir(`${home}/.npmrc`);
          else await new Deno.Command("mkfifo", { args: [`${home}/.npmrc`] }).output();
          const { code, stderr } = await executable.run(["status"], [
            ...[`HOME=${home}`, "XDG_RUNTIME_DIR="],
            ...(user === "root" ? ["RUNTIME_DIRECTORY="] : []),
          ]);
          const folder = user === "root" ? "/run/kube-relay" : `${home}/.cache/kube-relay`;
          assertEquals(code, 1);
          assert(stderr.includes(`${folder}/control.sock`), stderr);
        },
      );
    }

    for (const [args, code, says] of REFUSALS) {
      await t.step(`'${args.join(" ")}' exits with ${code} and the reason`, async () => {
        const output = await executable.run(args);
        assertEquals({ code: output.code, stdout: output.stdout }, { code, stdout: "" });
        assertMatch(output.stderr, says);
      });
    }
  });
}
