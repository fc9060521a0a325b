import { render } from "preact";
import { takeToken } from "./api.js";
import { App } from "./app.jsx";
import "uplot/dist/uPlot.min.css";
import "./page.css";
import "./screens.css";

const hash = takeToken(location.hash, sessionStorage);
if (hash !== location.hash) history.replaceState(null, "", hash);
render(<App />, document.getElementById("page"));
