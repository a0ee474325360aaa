/** Tests what the packages say about themselves. How they install is tested in tests/release. */
import { assertEquals } from "@std/assert";
import { fileURLToPath, pathToFileURL } from "node:url";
import { followLinks } from "../../tests/support/docs/links.ts";
import { runTool } from "../../tests/support/drivers/run_tool.ts";
import { program, testNeeding } from "../../tests/support/requirement.ts";
import { withFolder } from "../../tests/support/with_folder.ts";

const HERE = fileURLToPath(new URL("./", import.meta.url));

const test = testNeeding("the fields of packages", ["git", "dpkg-deb", "rpmbuild"].map(program));

/** Runs a step for a version. The executable has 20 MB, of which the file system keeps nothing. */
async function withPackage(
  step: string,
  version: string,
  test: (folder: string) => Promise<void>,
): Promise<void> {
  await withFolder(async (folder) => {
    const executable = `${folder}/kube-relay-x86_64`;
    await Deno.writeTextFile(executable, "GLIBC_2.35\n");
    await Deno.truncate(executable, 20_000_000);
    await Deno.mkdir(`${folder}/completion`);
    const names = ["bash", "zsh", "fish"].map((shell) => `completion/kube-relay.${shell}`);
    for (const name of [...names, "kube-relay.8", "THIRD-PARTY-LICENSES", "kube-relay.spdx.json"]) {
      await Deno.writeTextFile(`${folder}/${name}`, "");
    }
    await runTool("env", [
      ...["-C", `${HERE}../..`, "LC_ALL=C"],
      ...[`VERSION=${version}`, "MACHINES=x86_64", "SOURCE_DATE_EPOCH=1700000000"],
      ...[`${HERE}${step}`, folder],
    ]);
    await test(folder);
  });
}

test("the package for Debian sorts before its release, has the size of its files, and no dead link", () =>
  withPackage("deb.sh", "1.0.0-rc.1", async (folder) => {
    const file = `${folder}/kube-relay_1.0.0-rc.1_amd64.deb`;
    const [version, size] = (await runTool("dpkg-deb", [
      ...["--showformat", "${Version} ${Installed-Size}", "--show", file],
    ])).split(" ");
    assertEquals(version, "1.0.0~rc.1");
    const lines = (await runTool("dpkg-deb", ["--contents", file])).trimEnd().split("\n");
    // The first line is that of the root.
    const sizes = lines.slice(1).map((line) =>
      line.startsWith("-") ? Math.ceil(Number(line.split(/\s+/)[2]) / 1024) : 1
    );
    assertEquals(Number(size), sizes.reduce((sum, kib) => sum + kib, 0));
    await runTool("dpkg-deb", ["--extract", file, `${folder}/root`]);
    const docs = pathToFileURL(`${folder}/root/usr/share/doc/kube-relay/`);
    const { count, broken } = await followLinks(docs);
    assertEquals(broken, []);
    assertEquals(count > 50, true, `only ${count} links were found`);
  }));

test("the package for Fedora sorts before its release", () =>
  withPackage("rpm.sh", "1.0.0-rc.1", async (folder) => {
    const file = `${folder}/kube-relay_1.0.0-rc.1_x86_64.rpm`;
    assertEquals(await runTool("rpm", ["-qp", "--queryformat", "%{VERSION}", file]), "1.0.0~rc.1");
  }));
