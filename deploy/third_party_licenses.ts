/**
 * Collects the licences of the npm packages in a bundle, for the file next to the executable. The
 * bundle's source maps name the packages; dependencies that are not bundled are left out.
 *
 * `deno run --allow-read deploy/third_party_licenses.ts main.js.map … >THIRD-PARTY-LICENSES`
 *
 * @module
 */
import { dirname, join, resolve } from "node:path";

/** An npm package in Deno's cache. */
export interface BundledPackage {
  readonly name: string;
  readonly version: string;
  /** The folder of its files. */
  readonly directory: string;
}

/** The path at which Deno keeps a package: `…/npm/<registry host>/[@scope/]<name>/<version>/…`. */
const PACKAGE_PATH =
  /^(?<directory>.*\/npm\/[^/]+\/(?<name>(?:@[^/]+\/)?[^/]+)\/(?<version>\d[^/]*))\//;

/** The packages that the sources of a bundle come from, by name; files of our own are none. */
export function bundledPackages(sources: readonly string[]): BundledPackage[] {
  const packages = new Map<string, BundledPackage>();
  for (const source of sources) {
    const { directory, name, version } = PACKAGE_PATH.exec(source)?.groups ?? {};
    if (!directory || !name || !version) continue;
    // Deno adds _1, _2 … if a version is installed twice with different peers.
    const plain = version.replace(/_\d+$/, "");
    packages.set(`${name}@${plain}`, { name, version: plain, directory });
  }
  return [...packages.values()].sort((a, b) => a.name < b.name ? -1 : 1);
}

/**
 * Returns the licence of a package: its licence files, or else the field of its package.json.
 * Throws an Error if it has neither, because the package must not be distributed then.
 */
export async function licenseOf({ name, version, directory }: BundledPackage): Promise<string> {
  const texts: string[] = [];
  const names = (await Array.fromAsync(Deno.readDir(directory))).map((entry) => entry.name);
  for (const file of names.filter((file) => /^(licen[cs]e|copying|notice)/i.test(file)).sort()) {
    texts.push((await Deno.readTextFile(join(directory, file))).trim());
  }
  if (texts.length > 0) return texts.join("\n\n");
  const manifest = JSON.parse(await Deno.readTextFile(join(directory, "package.json")));
  if (typeof manifest.license === "string") {
    const author = manifest.author?.name ?? manifest.author;
    return `The package has no licence file; its package.json names ${manifest.license}` +
      (author ? ` and the author ${author}.` : ".");
  }
  throw new Error(
    `Cannot tell the licence of npm package ${name}@${version}: ` +
      "expected a licence file or the field 'license' in its package.json",
  );
}

/** The whole file: Deno's own notices, then one part for each package. */
export async function renderLicenses(
  notices: string,
  packages: readonly BundledPackage[],
): Promise<string> {
  const rule = "-".repeat(80);
  const parts = [notices.trim()];
  for (const found of packages) {
    parts.push(`${rule}\n${found.name} ${found.version}\n${rule}\n\n${await licenseOf(found)}`);
  }
  return parts.join("\n\n") + "\n";
}

/** Reads the packages that the sources of a bundle come from, from its source maps. */
export async function packagesOfMaps(maps: readonly string[]): Promise<BundledPackage[]> {
  const sources: string[] = [];
  for (const map of maps) {
    const content = JSON.parse(await Deno.readTextFile(map)) as { sources: string[] };
    sources.push(...content.sources.map((source) => resolve(dirname(map), source)));
  }
  const packages = bundledPackages(sources);
  if (packages.length > 0) return packages;
  throw new Error(
    `Cannot list packages: '${maps.join(" ")}' name no npm package; ` +
      "expected the source maps of a bundle",
  );
}

if (import.meta.main) {
  const notices = await Deno.readTextFile(new URL("./deno_notices.txt", import.meta.url));
  const text = await renderLicenses(notices, await packagesOfMaps(Deno.args));
  await Deno.stdout.write(new TextEncoder().encode(text));
}
